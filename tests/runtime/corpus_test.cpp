// The corpus and tokenizer that ship with the project. Expected values come from the `tokenizers`
// library with the same vocabulary and merges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/dataset.h"

namespace hydraulis {
namespace {

TEST(Corpus, IsTokenisedAsAnIndependentImplementationDoes) {
  DatasetSource source;
  source.path = HYDRAULIS_SOURCE_DIR "/experiments/data/corpus/corpus.jsonl.gz";
  source.tokenizer = "bpe:" HYDRAULIS_SOURCE_DIR "/experiments/data/corpus";
  source.end_token = 0;
  const auto data = open_dataset(source);
  const auto& lengths = data->lengths();
  ASSERT_EQ(lengths.size(), 1337u);
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}), 524086u);
  EXPECT_EQ(*std::ranges::min_element(lengths), 36u);
  EXPECT_EQ(*std::ranges::max_element(lengths), 12976u);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the ids
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> tokens(lengths[i]);
    data->read(i, 0, tokens);
    for (const std::int32_t token : tokens) {
      ASSERT_LT(token, 4096);
      hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3;
    }
  }
  EXPECT_EQ(hash, 0xff3361fd0eca38b8u);
}

}  // namespace
}  // namespace hydraulis
