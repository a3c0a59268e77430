#!/usr/bin/env python3
"""Doxygen's view of a public header: plain comments become its own. One on a line of its own documents what follows,
and, when it ends in a colon, all declarations up to the next comment or empty line; one at a line's end, and the lines
that go on below it, what stands before it; after a brace that opens, what it opens."""
import re
import sys


def escaped(text):
    """Outside of quotes and code, where Doxygen takes characters as they are."""
    parts = re.split(r'("[^"]*"|`[^`]*`)', text)
    return "".join(p if p[:1] in ('"', "`") else re.sub(r"([\\@<>#&%])", r"\\\1", p) for p in parts)


def of_c(text):
    text = re.sub(r"(#define \w+_H\w*\n)/\*", r"\1/** \\file\n *", text, count=1)
    text = re.sub(r"(?m)^(\s*)/\* ", r"\1/** ", text)
    return re.sub(r"(?m)(\S\s+)/\* ", r"\1/**< ", text)


def ends_a_declaration(line):
    return line.split("//")[0].rstrip().endswith((";", "}"))


def for_a_group(lines):
    """Repeats a comment that ends in a colon above each declaration of its group."""
    comment, ended = [], False
    for line in lines:
        if re.match(r"\s*///(?!<)", line):
            comment, ended = comment * (not ended) + [line], False
        elif not line.strip() or line.lstrip().startswith("}"):
            comment, ended = [], False
        else:
            if ended and comment and comment[-1].endswith(":"):
                yield from comment
            ended = ends_a_declaration(line)
        yield line


def of_cpp(text):
    trailing = -1  # the column of a line-end comment that may go on
    head = True  # the comment under #pragma once documents the file
    for line in text.splitlines():
        alone = re.match(r"^(\s*)// ?(.*)$", line)
        after = re.match(r"^(\s*)(.*\S)(\s+)// ?(.*)$", line)
        if alone and head:
            line = "//! " + escaped(alone[2])
        elif alone and len(alone[1]) == trailing:
            line = f"{alone[1]}///< {escaped(alone[2])}"
        elif alone:
            line, trailing = f"{alone[1]}/// {escaped(alone[2])}", -1
        elif after and after[2].startswith("}"):
            line, trailing = after[1] + after[2], -1
        elif after and after[2].endswith("{"):
            line, trailing = f"{after[1]}/// {escaped(after[4])}\n{after[1]}{after[2]}", -1
        elif after:
            trailing = len(after[1]) + len(after[2]) + len(after[3])
            line = f"{after[1]}{after[2]}{after[3]}///< {escaped(after[4])}"
        else:
            trailing = -1
        if line.startswith("#pragma once"):
            line = "//! \\file"
        elif not alone and head and line:
            head = False
        yield line


def main():
    text = open(sys.argv[1]).read()
    if sys.argv[1].endswith(".md"):
        sys.stdout.write(text)
    elif "#pragma once" in text:
        print("\n".join(for_a_group(of_cpp(text))))
    else:
        sys.stdout.write(of_c(text))


main()
