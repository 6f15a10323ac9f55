"""The near side of a run without torch: ranks that another framework starts and connects."""
