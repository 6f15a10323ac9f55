"""What a backend does in one version of torch: the corpus and the table of calls, kept, compared.

Takes an executor and a folder of scenarios, gives a :class:`document.Conformance`; a file holds
several of them, side by side. Knows nothing of a command line.
"""
