"""Registers, shared memory and spills of every CUDA kernel, as the assembler reports them.

Compiles every source for each architecture that the toolkit has and prints a table. Fails when a
kernel spills registers, with --check also when the table in a document is another one than with
the same toolkit now; --update writes it there.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ("80", "90", "100")
BEGIN = "<!-- resource table: begin -->"
END = "<!-- resource table: end -->"


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def assembler_report(nvcc, root, source, architecture):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", f"-I{root}", f"-arch=sm_{architecture}"]
        command += ["-cubin", "-Xptxas=-v", "-o", f"{folder}/out.cubin", source]
        return output_of(command)


def short_name(mangled_to_plain, mangled):
    """As the source spells it, without namespaces, parameters and return type."""
    name = mangled_to_plain[mangled].replace("(anonymous namespace)::", "")
    name = re.sub(r"hydraulis::cuda::", "", name).removeprefix("void ")
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    return name.replace("__nv_bfloat16", "bf16")


def kernels_of(report):
    """(mangled name, registers, static shared bytes, stack bytes, spilled bytes) of a report."""
    pattern = re.compile(
        r"Compiling entry function '(?P<name>\w+)'.*?"
        r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
        r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
        re.DOTALL,
    )
    for match in pattern.finditer(report):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        yield (
            match["name"],
            int(match["registers"]),
            int(shared[1]) if shared else 0,
            int(match["stack"]),
            max(int(match["stores"]), int(match["loads"])),
        )


def measure(options):
    """{(source, kernel): {architecture: figures}} of all sources."""
    known = set(re.findall(r"compute_(\d+)", output_of([options.nvcc, "--list-gpu-arch"])))
    architectures = [a for a in ARCHITECTURES if a in known]
    jobs = [(s, a) for s in options.sources for a in architectures]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(lambda j: assembler_report(options.nvcc, options.root, *j), jobs)
        reports = list(reports)
    found = [
        (source, architecture, kernel)
        for (source, architecture), report in zip(jobs, reports, strict=True)
        for kernel in kernels_of(report)
    ]
    names = sorted({kernel[0] for _, _, kernel in found})
    plain = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    to_plain = dict(zip(names, plain, strict=True))
    table = {}
    for source, architecture, (mangled, *figures) in found:
        key = (pathlib.Path(source).name, short_name(to_plain, mangled))
        table.setdefault(key, {})[architecture] = figures
    return architectures, table


def dynamic_shared(program):
    lines = output_of([program]).split("\n")
    return dict(line.rsplit(" ", 1) for line in lines if line)


def as_markdown(toolkit, architectures, table, dynamic):
    lines = [f"nvcc {toolkit}; registers a thread by architecture, shared memory a block.", ""]
    heads = " | ".join(f"sm_{a}" for a in architectures)
    lines.append(f"| file | kernel | {heads} | static shared | dynamic shared | stack | spills |")
    lines.append("|---|---|" + "---:|" * (len(architectures) + 4))
    for (source, kernel), by_architecture in sorted(table.items()):
        registers = " | ".join(str(by_architecture[a][0]) for a in architectures)
        most = [max(figures[i] for figures in by_architecture.values()) for i in (1, 2, 3)]
        code = f"`{kernel}`"
        cells = [source, code, registers, most[0], dynamic.get(kernel, 0), most[1], most[2]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--root", required=True, help="the project's folder")
    parser.add_argument("--dynamic-shared", required=True, help="the program of that name")
    parser.add_argument("--check", type=pathlib.Path, help="document whose table must be this one")
    parser.add_argument("--update", type=pathlib.Path, help="document to write the table to")
    options = parser.parse_args()

    toolkit = re.search(r"V([\d.]+)", output_of([options.nvcc, "--version"]))[1]
    architectures, table = measure(options)
    if not table:
        sys.exit("no kernel found in the assembler's reports")
    text = as_markdown(toolkit, architectures, table, dynamic_shared(options.dynamic_shared))
    print(text)
    status = 0
    for (source, kernel), by_architecture in sorted(table.items()):
        for architecture, (_, _, _, spills) in by_architecture.items():
            if spills > 0:
                print(f"{source}: {kernel} on sm_{architecture} spills {spills} bytes")
                status = 1
    document = options.update or options.check
    if document:
        before, _, rest = document.read_text().partition(BEGIN)
        kept, _, after = rest.partition(END)
        if not after:
            sys.exit(f"{document}: no place for the table, expected {BEGIN} and {END}")
        if options.update:
            document.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
        elif f"nvcc {toolkit};" not in kept:
            print(f"{document}: the table there is of another toolkit, not compared")
        elif kept.strip() != text.strip():
            print(f"{document}: other figures there; write them with cuda_resource_table_update")
            status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
