#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "traces/tokenizer/tokenizer.h"

namespace hydraulis {

/// Length in bytes of the piece that GPT-2's splitting rule takes at the beginning of a non-empty
/// text: a contraction ('s 't 're 've 'm 'll 'd), letters, numbers or other characters with one
/// space before them, or white space, of which the last character is left to what follows.
std::size_t next_piece(std::string_view text);

/// Byte-level BPE from a Hugging Face / GPT-2 vocabulary (vocab.json: token → id) and its merges
/// (merges.txt: two tokens a line, the most important first). Throws InputError naming file and
/// line for a merge of tokens that the vocabulary lacks, a vocabulary without one of the 256 byte
/// tokens, and malformed files.
std::unique_ptr<Tokenizer> load_bpe(const std::filesystem::path& vocab,
                                    const std::filesystem::path& merges);

}  // namespace hydraulis
