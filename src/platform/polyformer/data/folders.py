"""Folders of text files, one folder for each label."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyformer.data.cache import cache_folder, key_digest, write_text
from polyformer.data.lines import read_lines
from polyformer.data.reading import Reading
from polyformer.data.sources import Location
from polyformer.data.tables import table_format

__all__ = ["folders_digest", "label_folders", "read_folders"]


def label_folders(location: Location) -> list[Path] | None:
    """The folders whose names are labels and whose files are texts; None where the location is not made of folders.

    Args:
        location: a folder with one sub-folder for each label, or a list of the label folders themselves, which leaves
            others beside them out. Folders of tables are none.
    """
    folders = [Path(path) for path in ([location] if isinstance(location, str) else location)]
    if not folders or not all(path.is_dir() for path in folders):
        return None
    if isinstance(location, str):
        folders = sorted(entry for entry in folders[0].iterdir() if entry.is_dir() and not entry.name.startswith("."))
    tables = any(table_format(path) for folder in folders for path in _files(folder)[:1])
    return None if tables or not folders else folders


def read_folders(folders: Sequence[Path], reading: Reading | None = None) -> Iterator[dict[str, str]]:
    """Every file as an example: "text", "label", and "where" it is.

    Raises ValueError for a file that cannot be read, unless `reading` passes it over, as a whole.
    """
    reading = reading or Reading()
    for folder in folders:
        for path in _files(folder):
            try:
                text = "\n".join(read_lines(path))
            except ValueError as error:
                reading.file(path, str(error))
            else:
                yield {"text": text, "label": folder.name, "where": str(path)}


def folders_digest(folders: Sequence[Path]) -> str:
    """The sha256 of names and contents; remembered by sizes and times of change, so that the files are read once."""
    stamp = key_digest({"files": [_stamp(path) for folder in folders for path in _files(folder)]})
    memory = cache_folder() / "digests" / f"{key_digest({'folders': [str(folder.resolve()) for folder in folders]})}-{stamp}"
    if memory.is_file():
        return memory.read_text(encoding="utf-8")
    digest = hashlib.sha256()
    for folder in folders:
        for path in _files(folder):
            digest.update(f"{folder.name}/{path.name}\n".encode())
            with path.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    write_text(memory, digest.hexdigest())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))


def _stamp(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]
