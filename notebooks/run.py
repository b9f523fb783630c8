#!/usr/bin/env python3
"""Executes the notebooks in this folder, each in a process of its own.

notebooks/run.py --inputs out/notebooks            # executed copies go to the inputs' folder
notebooks/run.py --inputs out/notebooks --write    # outputs are stored in this folder
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
MOST_BYTES = 400_000  # of a committed notebook


def tidy(notebook):
    """Leaves out what differs from one execution to the next and says nothing."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}


def execute(path, target):
    notebook = nbformat.read(path, as_version=4)
    begin = time.monotonic()
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": HERE}})
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"failed  {path.name}\n{error}", flush=True)
        return False
    tidy(notebook)
    nbformat.validate(notebook)
    text = nbformat.writes(notebook) + "\n"
    if len(text) > MOST_BYTES:
        print(f"failed  {path.name}: {len(text)} bytes with outputs, at most {MOST_BYTES}")
        return False
    target.write_text(text)
    print(f"passed  {path.name}  {time.monotonic() - begin:.1f} s", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=Path, required=True, help="made by make_inputs.py")
    parser.add_argument("--write", action="store_true", help="store outputs in this folder")
    parser.add_argument("names", nargs="*", help="notebooks [all]")
    options = parser.parse_args()
    os.environ["HYDRAULIS_OUTPUTS"] = str(options.inputs.resolve())
    names = options.names or sorted(path.name for path in HERE.glob("*.ipynb"))
    if not names:
        sys.exit("no notebook found")
    folder = HERE if options.write else options.inputs / "executed"
    folder.mkdir(exist_ok=True)
    # Each has a kernel of its own, which the threads here only wait for.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        passed = list(pool.map(execute, [HERE / n for n in names], [folder / n for n in names]))
    print(f"{sum(passed)} notebooks passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
