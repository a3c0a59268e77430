#!/usr/bin/env python3
"""Doxygen's view of a public header: plain comments become its own. One on a line of its own documents what follows,
one at a line's end, and the lines that go on below it, what stands before it."""
import re
import sys


def escaped(text):
    return re.sub(r"([\\@<>#&%])", r"\\\1", text)


def main():
    trailing = -1  # the column of a line-end comment that may go on
    head = True  # the comment under #pragma once documents the file
    for line in open(sys.argv[1]):
        line = line.rstrip("\n")
        alone = re.match(r"^(\s*)// ?(.*)$", line)
        after = re.match(r"^(.*\S)(\s+)// ?(.*)$", line)
        if alone and head:
            line = "//! " + escaped(alone[2])
        elif alone and len(alone[1]) == trailing:
            line = f"{alone[1]}///< {escaped(alone[2])}"
        elif alone:
            line, trailing = f"{alone[1]}/// {escaped(alone[2])}", -1
        elif after:
            trailing = len(after[1]) + len(after[2])
            line = f"{after[1]}{after[2]}///< {escaped(after[3])}"
        else:
            trailing = -1
            line = re.sub(r"^(\s*)/\* ", r"\1/** ", line)
            line = re.sub(r"(\S\s+)/\* ", r"\1/**< ", line)
        if line.startswith("#pragma once"):
            line = "//! \\file"
        elif not alone and head and line:
            head = False
        print(line)


if sys.argv[1].endswith(".md"):
    sys.stdout.write(open(sys.argv[1]).read())
else:
    main()
