"""Files that a script writes, kept aside: its ranks run for a record, and not for their results.

What a process writes goes into a folder of copies, and what it reads comes from there where a copy
is; its own files stay as they were. Processes that share the folder see each other's files::

    open("snapshot.pt")            the script's own file, until there is a copy
    open("snapshot.pt", "wb")      COPIES/work/train/snapshot.pt
    open("snapshot.pt")            the copy
    os.remove("snapshot.pt")       GONE/work/train/snapshot.pt marks it as removed

Python's way to files is redirected: `open`, `os`, and with them `pathlib`, `shutil` and NumPy; and
that of torch and of safetensors. Whatever else of Python's opens a file to write is refused, by an
audit hook. A program that the script starts, and a library that opens files in C, are not seen.

Caches, temporary files with a random name, devices and the folder of the record stay as they are.
This runs in the user's own process: it imports the standard library alone.
"""

from __future__ import annotations

import builtins
import errno
import functools
import importlib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Self

#: the folder in that of a record in which the files lie that fake ranks write
SCRATCH = "scratch"
#: names that Python, torch and its compilers give to temporary files
_TEMPORARY = re.compile(
    r"tmp[a-z0-9_]{8}\b|pymp-|torch(inductor|elastic|_extensions)|triton|scenario-record-|ray/"
)
#: environment variables that name caches
_CACHES = (
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME"),
    *("TORCH_EXTENSIONS_DIR", "NUMBA_CACHE_DIR", "MPLCONFIGDIR"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: events of the audit that change a file which they name first
_CHANGES = frozenset(
    {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown"}
)


#: modules of Python that have kept the function `open` when they were imported, by its name there
_KEPT_OPEN = {"bz2": "_builtin_open", "tarfile": "bltn_open", "tokenize": "_builtin_open"}


class Scratch:
    """Keeps what this process writes aside, once it is installed.

    `folder` holds the copies and is shared by the processes that are to see each other's files;
    `free` are folders that are written to as ever, `own` those of the script, which never are.

    It is an overlay as `overlayfs` is one (the kernel's Documentation/filesystems/overlayfs.rst):
    an upper layer of copies, a lower one that is never written, and marks for what was removed,
    which overlayfs calls whiteouts. A mount would need rights that a user has not.
    """

    def __init__(
        self, folder: str, *, free: tuple[str, ...] = (), own: tuple[str, ...] = ()
    ) -> None:
        """Redirect nothing yet."""
        self._copies = os.path.join(os.path.abspath(folder), "copies")
        self._gone = os.path.join(os.path.abspath(folder), "gone")
        home = os.path.expanduser("~")
        caches = (os.environ.get(name, "") for name in _CACHES)
        known = (".cache", ".triton", ".nv", ".config/matplotlib")
        self._free = tuple(
            os.path.abspath(each)
            for each in (folder, *free, *caches, *(os.path.join(home, name) for name in known))
            if each
        )
        self._own = tuple(os.path.abspath(each) for each in own)
        self._temporary = os.path.abspath(tempfile.gettempdir())
        #: folders of the script among the temporary ones; not one that holds those
        self._inner = tuple(
            each
            for each in self._own
            if each != self._temporary and _is_below(each, self._temporary)
        )
        self._known: dict[str, bool] = {}
        names = (*_LOOKING, *_CHANGING, *_OTHERS)
        self._raw: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in names}
        self._raw["io.open"] = io.open

    # ------------------------------------------------------------------ where a path leads

    def path(self, path: Any) -> str | None:
        """Return the whole path of a file that is kept aside; None of any other.

        A path of a copy, as a script finds it in an error or by `os.path.realpath`, is that of its
        file. An empty path, as of a variable that is not set, names nothing, and not the folder.
        """
        if isinstance(path, int) or path in {"", b""}:
            return None
        try:
            whole = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        except (TypeError, OSError):
            return None
        if whole.startswith(self._copies + os.sep):
            return whole[len(self._copies) :]
        return None if self.is_free(whole) else whole

    def is_free(self, whole: str) -> bool:
        """Whether what is written to a whole path is written there."""
        folder = os.path.dirname(whole)
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._look(folder)
        if known or not _is_below(whole, self._temporary) or _is_any_below(whole, self._inner):
            return known
        return _TEMPORARY.match(os.path.relpath(whole, self._temporary)) is not None

    def _look(self, folder: str) -> bool:
        """Whether what lies in a folder is written there.

        The innermost of the known folders decides.

        A cache in the folder of the script is free, and the script's folder in a cache is not.
        """
        inner = max((len(each) for each in self._own if _is_below(folder, each)), default=-1)
        outer = max((len(each) for each in self._free if _is_below(folder, each)), default=-1)
        if outer > inner or "__pycache__" in folder:
            return True
        return folder.startswith(("/dev", "/proc", "/sys"))

    def _copy(self, whole: str) -> str:
        return self._copies + whole

    def _is_there(self, path: str) -> bool:
        try:
            self._raw["lstat"](path)
        except (OSError, ValueError):
            return False
        return True

    def _is_gone(self, whole: str) -> bool:
        """Whether a file of the script's own was removed, or a folder that it is in."""
        while len(whole) > 1:
            if self._is_there(os.path.join(self._gone + whole, ".gone")):
                return True
            whole = os.path.dirname(whole)
        return False

    def visible(self, whole: str) -> str:
        """Return the path at which a file is now: its copy, or its own."""
        copy = self._copy(whole)
        if self._is_there(copy) or self._is_gone(whole):
            return copy
        return whole

    def _make_parents(self, whole: str) -> None:
        """Let the folder of a copy be there, where that of its file is."""
        parent = os.path.dirname(whole)
        copy = self._copy(parent)
        if self._is_there(copy):
            return
        if parent != os.sep:
            status = self._raw["stat"](self.visible(parent))
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), parent)
        self._make_folders(copy)

    def _make_folders(self, path: str) -> None:
        if not self._is_there(path):
            self._make_folders(os.path.dirname(path))
            try:
                self._raw["mkdir"](path)
            except FileExistsError:
                return

    def _mark(self, whole: str) -> None:
        """Mark a file of the script's own as removed, in the folder of marks."""
        folder = self._gone + whole
        self._make_folders(folder)
        self._raw["io.open"](os.path.join(folder, ".gone"), "wb").close()

    def _copy_up(self, whole: str) -> str:
        """Return the copy of a file or folder, made of its own where there is none yet.

        What is changed in part is copied first: `open("log", "a")` appends to a copy of the log.
        """
        copy, source = self._copy(whole), self.visible(whole)
        self._make_parents(whole)
        if source == copy:
            return copy
        if not self._is_there(source):
            return copy
        status = self._raw["stat"](source)
        if stat.S_ISDIR(status.st_mode):
            self._make_folders(copy)
            for name in self._names(whole):
                self._copy_up(os.path.join(whole, name))
        elif stat.S_ISREG(status.st_mode):
            self._copy_file(source, copy)
        else:
            return source
        return copy

    def _copy_file(self, source: str, copy: str) -> None:
        """Copy a file under another name, and link it in its place: no process sees half of it."""
        part = f"{copy}.{os.getpid()}.part"
        opening = self._raw["io.open"]
        with opening(source, "rb") as one, opening(part, "wb") as other:
            shutil.copyfileobj(one, other, 1 << 20)
        try:
            self._raw["link"](part, copy)  # another process may have made it meanwhile
        except FileExistsError:
            pass
        finally:
            self._raw["unlink"](part)

    # ------------------------------------------------------------------ what is called

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """Open a file as `open` does."""
        raw, whole = self._raw["io.open"], self.path(file)
        if whole is None or not isinstance(mode, str):
            return raw(file, mode, *args, **kwargs)
        if not set(mode) & set("wax+"):
            return self._call_at(whole, raw, self.visible(whole), mode, *args, **kwargs)
        if "x" in mode and self._is_there(self.visible(whole)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), whole)
        target = self._find_folder(whole) or self._prepare_write(whole, anew="w" in mode)
        return self._call_at(whole, raw, target, mode, *args, **kwargs)

    def _find_folder(self, whole: str) -> str:
        """Return where a folder is that is opened to write; nothing for anything else.

        An opener makes a file in it, or the file has no name (`O_TMPFILE`): nothing of the folder
        is written, and it may be as large as `/tmp`.
        """
        found = self.visible(whole)
        return found if os.path.isdir(found) else ""

    def _prepare_write(self, whole: str, *, anew: bool) -> str:
        """Return the path at which a file is written: `anew`, or with what it holds."""
        source = self.visible(whole)
        if anew and (not self._is_there(source) or os.path.isfile(source)):
            self._make_parents(whole)
            return self._copy(whole)
        return self._copy_up(whole)

    def _call_at(
        self, whole: str, call: Callable[..., Any], path: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Call with a path in place of another one, by which an error calls it.

        A script that prints "No such file: 'ckpt/last.pt'" shows the name that it knows.
        """
        try:
            return call(path, *args, **kwargs)
        except OSError as error:
            if error.filename == path:
                error.filename = whole
            raise

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        raw = self._raw["open"]
        whole = None if dir_fd is not None else self.path(path)
        if whole is None:
            return int(raw(path, flags, mode, dir_fd=dir_fd))
        if not flags & _WRITING:
            return int(self._call_at(whole, raw, self.visible(whole), flags, mode))
        if flags & os.O_EXCL and self._is_there(self.visible(whole)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), whole)
        anew = bool(flags & os.O_TRUNC)
        target = self._find_folder(whole) or self._prepare_write(whole, anew=anew)
        return int(self._call_at(whole, raw, target, flags, mode))

    def _looks(self, name: str) -> Callable[..., Any]:
        """Return a function of `os` that looks at a file."""
        raw = self._raw[name]

        @functools.wraps(raw)
        def look(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            whole = None if kwargs.get("dir_fd") is not None else self.path(path)
            if whole is None:
                return raw(path, *args, **kwargs)
            return self._call_at(whole, raw, self.visible(whole), *args, **kwargs)

        return look

    def _changes(self, name: str) -> Callable[..., Any]:
        """Return a function of `os` that changes a file that is there."""
        raw = self._raw[name]

        @functools.wraps(raw)
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            whole = None if kwargs.get("dir_fd") is not None else self.path(path)
            if whole is None:
                return raw(path, *args, **kwargs)
            return self._call_at(whole, raw, self._copy_up(whole), *args, **kwargs)

        return change

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        whole = None if dir_fd is not None else self.path(path)
        if whole is None:
            self._raw["mkdir"](path, mode, dir_fd=dir_fd)
            return
        if self._is_there(self.visible(whole)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), whole)
        self._make_parents(whole)
        self._call_at(whole, self._raw["mkdir"], self._copy(whole), mode)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        whole = None if dir_fd is not None else self.path(path)
        if whole is None:
            self._raw["unlink"](path, dir_fd=dir_fd)
            return
        self._drop(whole, "unlink")

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        whole = None if dir_fd is not None else self.path(path)
        if whole is None:
            self._raw["rmdir"](path, dir_fd=dir_fd)
            return
        if self._is_there(self.visible(whole)) and self._names(whole):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), whole)
        self._drop(whole, "rmdir")

    def _drop(self, whole: str, name: str) -> None:
        """Remove the copy of a file, and mark its own as removed."""
        copy = self._copy(whole)
        is_own = self._is_there(whole) and not self._is_gone(whole)
        if self._is_there(copy) or not is_own:
            self._call_at(whole, self._raw[name], copy)
        if is_own:
            self._mark(whole)

    def _rename(self, source: Any, target: Any, **kwargs: Any) -> None:
        """Rename a file, or replace one by another, within what is kept aside or across its edge.

        That is how checkpoints are written: `torch.save(..., "x.tmp")`, then `os.replace("x.tmp",
        "x.pt")`.
        """
        one, two = self.path(source), self.path(target)
        raw = self._raw["replace"]
        if one is None and two is None:
            raw(source, target, **kwargs)
            return
        given = os.fsdecode(source) if one is None else self._copy_up(one)
        if not self._is_there(given):
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(source), None, target
            )
        if two is None:
            path = os.fsdecode(target)
        else:
            self._make_parents(two)
            path = self._copy(two)
            if os.path.isdir(given) and self._is_there(two):
                self._mark(two)
        try:
            raw(given, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.move(given, path)
        if one is not None and self._is_there(one):
            self._mark(one)

    def _names(self, whole: str) -> list[str]:
        """Return the names in a folder: those of copies, and of its own that are still there."""
        copy = self._copy(whole)
        found = set(self._raw["listdir"](copy)) if self._is_there(copy) else set()
        if self._is_there(whole) and not self._is_gone(whole):
            own = self._raw["listdir"](whole)
            found |= {name for name in own if not self._is_gone(os.path.join(whole, name))}
        return sorted(found)

    def _listdir(self, path: Any = ".") -> list[Any]:
        whole = self.path("." if path is None else path)
        if whole is None:
            return list(self._raw["listdir"](path))
        seen = self.visible(whole)
        self._call_at(whole, self._raw["listdir"], seen)
        names = self._names(whole)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = ".") -> Any:
        whole = self.path("." if path is None else path)
        if whole is None:
            return self._raw["scandir"](path)
        names, raw = set(self._listdir(path)), self._raw["scandir"]
        found: dict[str, Any] = {}
        for folder in (whole, self._copy(whole)):
            if self._is_there(folder):
                with raw(folder) as entries:
                    found |= {each.name: each for each in entries if each.name in names}
        return _Entries(iter(found.values()))

    def _link(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        two = self.path(target)
        if two is None:
            self._raw["link"](source, target, *args, **kwargs)
            return
        one = self.path(source)
        given = source if one is None else self._copy_up(one)
        self._make_parents(two)
        self._raw["link"](given, self._copy(two))

    def _symlink(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        whole = self.path(target)
        if whole is None:
            self._raw["symlink"](source, target, *args, **kwargs)
            return
        if self._is_there(self.visible(whole)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), whole)
        self._make_parents(whole)
        self._raw["symlink"](source, self._copy(whole), *args, **kwargs)

    # ------------------------------------------------------------------ in their place

    def install(self) -> None:
        """Keep what this process writes aside from now on, and that of processes it forks."""
        self._make_folders(self._copies)
        self._make_folders(self._gone)
        put: Any = os
        for name in _LOOKING:
            setattr(put, name, self._looks(name))
        for name in _CHANGING:
            setattr(put, name, self._changes(name))
        put.open, put.mkdir, put.rmdir = self._open, self._mkdir, self._rmdir
        put.remove = put.unlink = self._remove
        put.rename = put.replace = self._rename
        put.listdir, put.scandir = self._listdir, self._scandir
        put.link, put.symlink = self._link, self._symlink
        builtins.open = io.open = self.open
        for module, name in _KEPT_OPEN.items():
            if module in sys.modules:
                setattr(sys.modules[module], name, self.open)
        put = shutil
        put._use_fd_functions = False
        self._redirect_libraries()
        sys.addaudithook(self._audit)

    def _redirect_libraries(self) -> None:
        """Redirect what opens files in C: torch's, and that of safetensors."""
        torch = sys.modules.get("torch")
        if torch is not None:
            kind = torch._C
            kind.PyTorchFileWriter = self._wrap_first_path(kind.PyTorchFileWriter, is_written=True)
            kind.PyTorchFileReader = self._wrap_first_path(kind.PyTorchFileReader, is_written=False)
            storage = torch.UntypedStorage
            storage.from_file = self._wrap_first_path(storage.from_file, is_written=False)
        try:
            module: Any = importlib.import_module("safetensors")
        except ImportError:
            return
        module.safe_open = self._wrap_first_path(module.safe_open, is_written=False)
        write = module.serialize_file

        @functools.wraps(write)
        def write_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            return write(tensors, self._library_path(filename, is_written=True), *args, **kwargs)

        module.serialize_file = write_file

    def _library_path(self, name: Any, *, is_written: bool) -> Any:
        whole = self.path(name) if isinstance(name, str | bytes | os.PathLike) else None
        if whole is None:
            return name
        return self._prepare_write(whole, anew=True) if is_written else self.visible(whole)

    def _wrap_first_path(self, call: Callable[..., Any], *, is_written: bool) -> Callable[..., Any]:
        """Return a function whose first argument may be a path."""

        def redirect(name: Any, *args: Any, **kwargs: Any) -> Any:
            return call(self._library_path(name, is_written=is_written), *args, **kwargs)

        return redirect

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse what changes a file of the script's own in a way that is not redirected.

        Python raises an audit event before each of these
        (https://docs.python.org/3/library/audit_events.html), also where a module took `os.open`
        before it was replaced here.
        """
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & _WRITING:
                return
        elif event in _CHANGES or event == "sqlite3.connect":
            path = args[0]
        else:
            return
        if path is None or path in {"", ":memory:"} or isinstance(path, int):
            return
        whole = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        if event == "open" and os.path.isdir(whole):
            return  # no file of the folder is opened
        if not whole.startswith((self._copies, self._gone)) and not self.is_free(whole):
            words = "a fake rank does not write here; `scenario record --writes-allowed` lets it"
            raise PermissionError(errno.EPERM, words, whole)


class _Entries:
    """What a folder holds, as `os.scandir` gives it."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        """Have no more."""
        self._entries = iter(())


#: functions of `os` that look at a file, and that change one which is there
_LOOKING = ("stat", "lstat", "access", "readlink", "chdir", "statvfs")
_CHANGING = ("truncate", "utime", "chmod", "chown")
#: those that do more
_OTHERS = (
    *("open", "mkdir", "rmdir", "unlink", "replace", "listdir", "scandir", "link", "symlink"),
)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_any_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(_is_below(path, each) for each in folders)
