#!/usr/bin/env python3
"""Makes the small training corpus and its tokenizer that ship with the project.

    experiments/data/make_corpus.py DOCUMENTS.jsonl experiments/data/corpus

DOCUMENTS.jsonl has an object a line with `id` and `text`, in random order. Documents are taken in
that order while they fit: none over 64 KiB, 1,900,000 bytes of text in all. The tokenizer is a
byte-level BPE in GPT-2's form (vocab.json, merges.txt) with 4,096 tokens trained on them: id 0 is
<|endoftext|>, 1 to 256 the bytes, then one a merge.
"""

import collections
import gzip
import itertools
import json
import re
import sys
from pathlib import Path

MOST_DOCUMENT_BYTES = 64 * 1024
MOST_BYTES = 1_900_000
VOCABULARY = 4096
PIECE = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+", re.UNICODE
)


def select(lines):
    """Documents up to the limits, in their order."""
    chosen, size = [], 0
    for line in lines:
        document = json.loads(line)
        length = len(document["text"].encode())
        if length <= MOST_DOCUMENT_BYTES and size + length <= MOST_BYTES:
            chosen.append({"id": document["id"], "text": document["text"]})
            size += length
    return chosen


def byte_characters():
    """GPT-2's printable stand-in of every byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters, following = {}, 256
    for byte in range(256):
        if byte in printable:
            characters[byte] = chr(byte)
        else:
            characters[byte] = chr(following)
            following += 1
    return characters


def train(texts, merges_wanted):
    """The most frequent pair is merged, again and again; the first in order of text wins a tie."""
    counts = collections.Counter()
    for text in texts:
        counts.update(PIECE.findall(text))
    characters = byte_characters()
    words = [[characters[b] for b in word.encode()] for word in counts]
    frequencies = list(counts.values())
    pairs = collections.Counter()
    places = collections.defaultdict(set)
    for index, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += frequencies[index]
            places[pair].add(index)
    merges = []
    while len(merges) < merges_wanted:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for index in sorted(places.pop(best)):
            word, frequency = words[index], frequencies[index]
            for pair in itertools.pairwise(word):
                pairs[pair] -= frequency
            merged, at = [], 0
            while at < len(word):
                if tuple(word[at : at + 2]) == best:
                    merged.append(best[0] + best[1])
                    at += 2
                else:
                    merged.append(word[at])
                    at += 1
            words[index] = merged
            for pair in itertools.pairwise(merged):
                pairs[pair] += frequency
                places[pair].add(index)
        del pairs[best]
    return merges


def main():
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with source.open(encoding="utf-8") as lines:
        documents = select(lines)
    merges = train([d["text"] for d in documents], VOCABULARY - 257)
    tokens = ["<|endoftext|>", *byte_characters().values(), *(a + b for a, b in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    assert len(vocabulary) == VOCABULARY, "two merges made the same token"
    text = "".join(json.dumps(d, ensure_ascii=False) + "\n" for d in documents)
    with (folder / "corpus.jsonl.gz").open("wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    print(f"{len(documents)} documents, {sum(len(d['text'].encode()) for d in documents)} bytes")


if __name__ == "__main__":
    main()
