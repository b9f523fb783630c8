#include "runtime/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Data : public testing::Test {
 protected:
  /// A data set of texts of these lengths; the letters tell document and place.
  void add(const std::vector<std::size_t>& lengths, double weight = 1) {
    std::string lines;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::string text;
      for (std::size_t j = 0; j < lengths[i]; ++j) text += letter(i, j);
      lines += "{\"text\":\"" + text + "\"}\n";
    }
    DatasetSource source;
    source.path = folder.write(fmt::format("{}.jsonl", settings.sets.size()), lines).string();
    source.tokenizer = "bytes";
    settings.sets.push_back({source, weight});
  }
  static char letter(std::size_t document, std::size_t place) {
    return static_cast<char>('a' + (document * 7 + place) % 26);
  }
  static std::vector<std::size_t> random_lengths(std::size_t count, std::uint64_t most) {
    Random random(count);
    std::vector<std::size_t> lengths;
    for (std::size_t i = 0; i < count; ++i) lengths.push_back(1 + random.below(most));
    return lengths;
  }
  std::string refusal() {
    return message_of<InputError>([&] { const TrainingData data(settings); });
  }
  TemporaryFolder folder;
  DataSettings settings = [] {
    DataSettings made;
    made.vocabulary = 256;
    made.sampling.tokens_per_batch = 200;
    made.sampling.seed = 11;
    return made;
  }();
};

TEST_F(Data, OneSetIsDrawnAsTheSamplerDrawsItsLengths) {
  const auto lengths = random_lengths(60, 90);
  add(lengths);
  settings.sampling.context = 40;
  for (const OverContext policy : {OverContext::split, OverContext::truncate, OverContext::drop}) {
    settings.sampling.over_context = policy;
    LengthTrace trace;
    trace.lengths.assign(lengths.begin(), lengths.end());
    Sampler sampler(trace, settings.sampling);
    TrainingData data(settings);
    for (int step = 0; step < 40; ++step) {
      const Batch expected = sampler.next();
      const TrainingBatch batch = data.next();
      ASSERT_EQ(batch.ids(), expected.ids);
      ASSERT_EQ(batch.lengths(), expected.lengths);
      for (const TrainingSequence& sequence : batch.sequences) {
        ASSERT_EQ(sequence.document, sampler.document_of(sequence.id));
        std::vector<std::int32_t> tokens(sequence.length);
        data.read(sequence, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          ASSERT_EQ(tokens[i], letter(sequence.document, sequence.first + i));
        }
      }
    }
  }
}

TEST_F(Data, AnEpochHasEverySequenceOnceAndTheNextIsInAnotherOrder) {
  add(random_lengths(50, 30));
  settings.sampling.tokens_per_batch = 0;
  settings.sampling.sequences_per_batch = 25;
  TrainingData data(settings);
  std::vector<std::vector<std::uint64_t>> epochs(2);
  for (int batch = 0; batch < 4; ++batch) {
    for (const auto& sequence : data.next().sequences) {
      epochs[static_cast<std::size_t>(batch / 2)].push_back(sequence.document);
    }
  }
  EXPECT_EQ(std::set<std::uint64_t>(epochs[0].begin(), epochs[0].end()).size(), 50u);
  EXPECT_EQ(std::set<std::uint64_t>(epochs[1].begin(), epochs[1].end()).size(), 50u);
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST_F(Data, SetsAreBlendedByTheirTokens) {
  add(random_lengths(40, 10), 3);
  add(random_lengths(30, 50), 1);
  add(random_lengths(20, 5), 6);
  TrainingData data(settings);
  std::vector<double> tokens(3);
  std::set<std::uint64_t> ids;
  std::size_t sequences = 0;
  for (int step = 0; step < 100; ++step) {
    for (const auto& sequence : data.next().sequences) {
      tokens[sequence.set] += sequence.length;
      ids.insert(sequence.id);
      ++sequences;
    }
    // At no time is a set further off its share than its longest sequence (and the one offered).
    const double all = tokens[0] + tokens[1] + tokens[2];
    if (all == 0) continue;
    EXPECT_NEAR(tokens[0], all * 0.3, 60);
    EXPECT_NEAR(tokens[1], all * 0.1, 60);
    EXPECT_NEAR(tokens[2], all * 0.6, 60);
  }
  EXPECT_EQ(ids.size(), sequences) << "ids are unique over sets and epochs";
}

TEST_F(Data, ResumedItGoesOnAsIfItHadNeverStopped) {
  add(random_lengths(1000, 30));
  add(random_lengths(17, 70), 0.5);
  settings.sampling.context = 25;
  settings.sampling.over_context = OverContext::split;
  settings.held_out = 0.1;
  TrainingData straight(settings);
  std::vector<std::vector<std::uint64_t>> log;
  std::vector<Json> positions;
  for (int step = 0; step < 130; ++step) {
    positions.push_back(straight.position());
    log.push_back(straight.next().ids());
  }
  for (std::size_t stop = 0; stop < log.size(); stop += 9) {
    TrainingData resumed(settings);
    resumed.seek(Json::parse(positions[stop].dump()), "manifest.json");
    EXPECT_EQ(resumed.position(), positions[stop]);
    for (std::size_t step = stop; step < log.size(); ++step) {
      ASSERT_EQ(resumed.next().ids(), log[step]) << "stopped at " << stop;
    }
  }
}

TEST_F(Data, ResumesAtTheExactEndOfAnEpochAndInsideABatchOverIt) {
  // 1,000 sequences, batch 128: eight updates use 1,024; the ninth begins with the 25th of epoch 1.
  add(std::vector<std::size_t>(1000, 2));
  settings.sampling.tokens_per_batch = 0;
  for (const std::uint64_t size : {std::uint64_t{128}, std::uint64_t{125}}) {
    settings.sampling.sequences_per_batch = size;
    TrainingData straight(settings);
    for (int step = 0; step < 8; ++step) straight.next();
    TrainingData resumed(settings);
    resumed.seek(straight.position(), "manifest.json");
    const auto ids = resumed.next().ids();
    EXPECT_EQ(ids, straight.next().ids());
    EXPECT_GE(ids[0], 1000u);
  }
}

TEST_F(Data, RefusesAPositionOfOtherData) {
  add({3, 4, 5});
  TrainingData data(settings);
  const Json position = data.position();
  const auto message = [&](const Json& other) {
    return message_of<InputError>([&] { data.seek(other, "manifest.json"); });
  };
  Json other = position;
  other["seed"] = 12;
  EXPECT_THAT(message(other), HasSubstr("'data.seed' is 12 in the checkpoint, but 11"));
  other = position;
  other["sets"][0]["documents"] = 4;
  EXPECT_THAT(message(other), HasSubstr("documents"));
  other = position;
  other["sets"][0]["lengths_crc32c"] = 1;
  EXPECT_THAT(message(other), HasSubstr("lengths_crc32c"));
  other = position;
  other["sets"].push_back(other["sets"][0]);
  EXPECT_THAT(message(other), HasSubstr("'data.sets' is 2"));
  other = position;
  other["sets"][0]["sampler"]["next_in_epoch"] = 9;
  EXPECT_THAT(message(other), HasSubstr("next_in_epoch"));
  other = position;
  other.erase("held_out");
  EXPECT_THAT(message(other), HasSubstr("held_out"));
}

TEST_F(Data, HeldOutDocumentsAreNeverTrainedOn) {
  add(random_lengths(500, 20));
  settings.held_out = 0.2;
  TrainingData data(settings);
  std::map<std::uint64_t, int> validated;
  for (const auto& batch : data.validation_batches(100, 1000)) {
    std::uint64_t tokens = 0;
    for (const auto& sequence : batch.sequences) {
      ++validated[sequence.document];
      tokens += sequence.length;
    }
    EXPECT_LE(tokens, 100u);
  }
  EXPECT_GT(validated.size(), 70u);
  EXPECT_LT(validated.size(), 130u);
  for (const auto& [document, times] : validated) {
    EXPECT_EQ(times, 1);
    EXPECT_TRUE(is_held_out(document, 0.2));
  }
  for (int step = 0; step < 60; ++step) {
    for (const auto& sequence : data.next().sequences) {
      ASSERT_FALSE(validated.contains(sequence.document));
    }
  }
  EXPECT_EQ(data.validation_batches(1, 7).size(), 7u);
  settings.sampling.seed = 99;  // the same documents, whatever the seed
  std::set<std::uint64_t> again;
  for (const auto& batch : TrainingData(settings).validation_batches(100, 1000)) {
    for (const auto& sequence : batch.sequences) again.insert(sequence.document);
  }
  EXPECT_EQ(again.size(), validated.size());
  EXPECT_TRUE(validated.contains(*again.begin()));
}

TEST_F(Data, PromptsStayPromptsWhenADocumentIsCut) {
  DatasetSource source;
  source.path = folder.write("p.jsonl", "{\"p\":\"0123456789\",\"r\":\"abcde\"}\n").string();
  source.tokenizer = "bytes";
  source.prompt_field = "p";
  source.response_field = "r";
  settings.sets.push_back({source, 1});
  settings.sampling.context = 6;
  settings.sampling.over_context = OverContext::split;
  settings.sampling.tokens_per_batch = 15;
  TrainingData data(settings);
  const TrainingBatch batch = data.next();
  std::vector<std::uint32_t> prompts;
  for (const auto& sequence : batch.sequences) prompts.push_back(data.prompt_tokens(sequence));
  EXPECT_THAT(batch.lengths(), ElementsAre(6, 6, 3));
  EXPECT_THAT(prompts, ElementsAre(6, 4, 0));
}

TEST_F(Data, SaysWhatItLeavesOutAndRefuses) {
  add({3, 0, 30, 0});
  settings.sampling.context = 10;
  EXPECT_THAT(refusal(), HasSubstr("sequence 2 has 30 tokens, the context is 10"));
  settings.sampling.over_context = OverContext::truncate;
  {
    TrainingData data(settings);
    EXPECT_THAT(data.notes(), ElementsAre(HasSubstr("2 empty documents left out")));
    data.next();
    EXPECT_THAT(data.notes().back(), HasSubstr("over the context so far"));
  }
  settings.vocabulary = 'c';
  {
    TrainingData data(settings);
    const TrainingSequence sequence{0, 0, 0, 0, 3};
    std::vector<std::int32_t> tokens(3);
    EXPECT_THAT(message_of<InputError>([&] { data.read(sequence, tokens); }),
                HasSubstr("sequence 0: token 2 is 99, expected 0 to 98"));
  }
  settings.held_out = 1e-9;
  EXPECT_THAT(refusal(), HasSubstr("leaves none of 4 documents"));
  settings.sets.clear();
  settings.held_out = 0;
  add({0, 0});
  EXPECT_THAT(refusal(), HasSubstr("no sequence to train on (2 documents, 2 empty"));
  settings.sampling.sequences_per_batch = 1;
  EXPECT_THAT(refusal(), HasSubstr("exactly one of them"));
}

TEST(DataSettings, AreReadFromJson) {
  const Json json = Json::parse(R"({"sets":[{"path":"a.jsonl","tokenizer":"bpe:v.json,m.txt",
      "end_token":7,"weight":2},{"path":"/abs/b.idx","unit":"sequence"}],
      "tokens_per_batch":4096,"context":512,"over_context":"split","held_out":0.01,"seed":3})");
  const DataSettings settings = parse_data_settings(json, "/runs/run.json", "data");
  ASSERT_EQ(settings.sets.size(), 2u);
  EXPECT_EQ(settings.sets[0].source.path, "/runs/a.jsonl");
  EXPECT_EQ(settings.sets[0].source.tokenizer, "bpe:/runs/v.json,/runs/m.txt");
  EXPECT_EQ(settings.sets[0].source.end_token, 7);
  EXPECT_EQ(settings.sets[0].weight, 2);
  EXPECT_EQ(settings.sets[1].source.path, "/abs/b.idx");
  EXPECT_EQ(settings.sets[1].source.unit, DocumentUnit::sequence);
  EXPECT_EQ(settings.sampling.tokens_per_batch, 4096u);
  EXPECT_EQ(settings.sampling.over_context, OverContext::split);
  EXPECT_EQ(settings.held_out, 0.01);
  const auto refusal = [&](const char* text) {
    return message_of<InputError>(
        [&] { parse_data_settings(Json::parse(text), "run.json", "data"); });
  };
  EXPECT_THAT(refusal(R"({"sets":[]})"), HasSubstr("run.json: field 'data.sets'"));
  EXPECT_THAT(refusal(R"({"sets":[{"path":"a"}],"sed":1})"), HasSubstr("'data.sed' is not known"));
  EXPECT_THAT(refusal(R"({"sets":[{"path":"a","x":1}]})"), HasSubstr("'data.sets[0].x'"));
  EXPECT_THAT(refusal(R"({"sets":[{"path":"a","weight":0}]})"), HasSubstr("weight"));
  EXPECT_THAT(refusal(R"({"sets":[{"path":"a"}],"held_out":1})"), HasSubstr("held_out"));
}

}  // namespace
}  // namespace hydraulis
