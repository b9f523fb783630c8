#!/usr/bin/env python3
"""Writes unicode_ranges.inc: the code points of the classes that byte-level BPE splits text by.

python3 make_unicode_ranges.py > unicode_ranges.inc
"""

import sys
import unicodedata

# Unicode's White_Space property; it is not in unicodedata and has been stable since version 6.3.
SPACES = {
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
}


def ranges(belongs):
    begin = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and belongs(code)
        if inside and begin is None:
            begin = code
        elif not inside and begin is not None:
            yield begin, code - 1
            begin = None


def write(name, belongs):
    cells = [f"{{0x{a:x}, 0x{b:x}}}" for a, b in ranges(belongs)]
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            print(line)
            line = "   "
        line += f" {cell},"
    print(line)
    print("};")


print(f"// Made by make_unicode_ranges.py from Unicode {unicodedata.unidata_version}; do not edit.")
write("kLetters", lambda c: unicodedata.category(chr(c))[0] == "L")
write("kNumbers", lambda c: unicodedata.category(chr(c))[0] == "N")
write("kSpaces", lambda c: c in SPACES)
