#include "traces/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hydraulis {
namespace {

LengthTrace make_trace(std::vector<std::uint32_t> lengths) {
  LengthTrace trace;
  trace.lengths = std::move(lengths);
  trace.source = "test";
  return trace;
}

LengthTrace counting_trace(std::uint32_t documents) {
  LengthTrace trace = make_trace({});
  for (std::uint32_t i = 0; i < documents; ++i) trace.lengths.push_back(1 + (i * 37) % 101);
  return trace;
}

SamplerOptions by_tokens(std::uint64_t tokens, std::uint64_t context = 0,
                         OverContext policy = OverContext::error) {
  SamplerOptions options;
  options.tokens_per_batch = tokens;
  options.context = context;
  options.over_context = policy;
  return options;
}

SamplerOptions by_sequences(std::uint64_t sequences) {
  SamplerOptions options;
  options.sequences_per_batch = sequences;
  return options;
}

std::string error_of(const LengthTrace& trace, const SamplerOptions& options) {
  try {
    Sampler sampler(trace, options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Sampler, EveryDocumentOnceAnEpochInASeededOrder) {
  const LengthTrace trace = counting_trace(1000);
  Sampler sampler(trace, by_sequences(100));
  std::vector<std::uint64_t> first;
  std::vector<std::uint64_t> second;
  for (int i = 0; i < 10; ++i) {
    const Batch batch = sampler.next();
    for (std::size_t k = 0; k < batch.ids.size(); ++k) {
      EXPECT_EQ(batch.lengths[k], trace.lengths[batch.ids[k]]);
    }
    first.insert(first.end(), batch.ids.begin(), batch.ids.end());
  }
  for (int i = 0; i < 10; ++i) {
    for (const std::uint64_t id : sampler.next().ids) {
      EXPECT_GE(id, 1000u);
      second.push_back(id - 1000);
    }
  }
  EXPECT_NE(first, second) << "each epoch has its own order";
  EXPECT_EQ(std::set<std::uint64_t>(first.begin(), first.end()).size(), 1000u);
  EXPECT_EQ(std::set<std::uint64_t>(second.begin(), second.end()).size(), 1000u);

  SamplerOptions other = by_sequences(1000);
  EXPECT_EQ(Sampler(trace, other).next().ids, first) << "batch size does not change the order";
  other.seed = 1;
  EXPECT_NE(Sampler(trace, other).next().ids, first);
  other.shuffle = false;
  const Batch plain = Sampler(trace, other).next();
  EXPECT_EQ(plain.lengths, trace.lengths);
}

TEST(Sampler, BudgetTakesWholeSequencesUntilTheNextWouldExceedIt) {
  const LengthTrace trace = make_trace({4, 3, 3, 5, 20, 1});
  SamplerOptions options = by_tokens(10);
  options.shuffle = false;
  Sampler sampler(trace, options);
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{4, 3, 3}));
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{5}));
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{20})) << "at least one sequence";
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{1, 4, 3})) << "over the epoch";
}

TEST(Sampler, ExactTokensCutsTheLastSequence) {
  const LengthTrace trace = make_trace({4, 3, 5, 30, 8});
  SamplerOptions options = by_tokens(10);
  options.shuffle = false;
  options.exact_tokens = true;
  Sampler sampler(trace, options);
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{4, 3, 3}));
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{10}));
  EXPECT_EQ(sampler.next().lengths, (std::vector<std::uint32_t>{8, 2}));
  EXPECT_EQ(sampler.position().tokens_cut_to_fit, 2u + 20u + 2u);
}

// A06: a sequence over the limit is refused with its position, length and the limit.
TEST(Sampler, OverContextErrorNamesPositionLengthAndContext) {
  const std::string message = error_of(make_trace({30, 20, 121, 61}), by_tokens(60, 60));
  EXPECT_NE(message.find("sequence 2 has 121 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("context is 60"), std::string::npos) << message;
  EXPECT_EQ(error_of(make_trace({30, 60}), by_tokens(60, 60)), "accepted");
}

// A07: nothing disappears without a count.
TEST(Sampler, TokensPlacedAndRemovedAddUpUnderEveryPolicy) {
  LengthTrace trace = counting_trace(500);
  trace.lengths[17] = 1000;
  trace.lengths[18] = 120;
  trace.lengths[400] = 61;
  std::uint64_t total = 0;
  for (const std::uint32_t length : trace.lengths) total += length;
  for (const OverContext policy : {OverContext::truncate, OverContext::split, OverContext::drop}) {
    for (const bool exact : {false, true}) {
      SamplerOptions options = by_tokens(777, 60, policy);
      options.exact_tokens = exact;
      Sampler sampler(trace, options);
      std::uint64_t placed = 0;
      while (sampler.position().epoch == 0 || sampler.position().next_in_epoch < 100) {
        const Batch batch = sampler.next();
        EXPECT_LE(batch.tokens(), 777u);
        if (exact) {
          EXPECT_EQ(batch.tokens(), 777u);
        }
        for (const std::uint32_t length : batch.lengths) EXPECT_LE(length, 60u);
        placed += batch.tokens();
      }
      // What the documents consumed hold, worked out from the position alone.
      const SamplerPosition& at = sampler.position();
      SamplerOptions plain = by_sequences(1);
      Sampler order(trace, plain);
      std::uint64_t consumed = at.epoch * total;
      for (std::uint64_t i = 0; i < at.epoch * 500; ++i) order.next();
      for (std::uint64_t i = 0; i < at.next_in_epoch; ++i) consumed += order.next().tokens();
      consumed += at.offset_in_document;
      EXPECT_EQ(placed + at.counts.tokens_removed + at.tokens_cut_to_fit, consumed)
          << static_cast<int>(policy) << exact;
      EXPECT_GT(at.counts.sequences, 0u);
    }
  }
}

TEST(Sampler, PoliciesDoWhatTheySay) {
  const LengthTrace trace = make_trace({5, 25, 10});
  const auto run = [&](OverContext policy) {
    SamplerOptions options = by_tokens(1000, 10, policy);
    options.tokens_per_batch = 0;
    options.sequences_per_batch = policy == OverContext::split  ? 5
                                  : policy == OverContext::drop ? 2
                                                                : 3;
    options.shuffle = false;
    Sampler sampler(trace, options);
    const Batch batch = sampler.next();
    return std::make_pair(batch, sampler.position().counts);
  };
  auto [cut, cut_counts] = run(OverContext::truncate);
  EXPECT_EQ(cut.lengths, (std::vector<std::uint32_t>{5, 10, 10}));
  EXPECT_EQ(cut_counts.sequences, 1u);
  EXPECT_EQ(cut_counts.tokens_removed, 15u);
  auto [pieces, piece_counts] = run(OverContext::split);
  EXPECT_EQ(pieces.lengths, (std::vector<std::uint32_t>{5, 10, 10, 5, 10}));
  EXPECT_EQ(pieces.ids, (std::vector<std::uint64_t>{0, 1, 2, 3, 4})) << "pieces have own ids";
  EXPECT_EQ(piece_counts.sequences, 1u);
  EXPECT_EQ(piece_counts.tokens_removed, 0u);
  auto [kept, drop_counts] = run(OverContext::drop);
  EXPECT_EQ(kept.lengths, (std::vector<std::uint32_t>{5, 10}));
  EXPECT_EQ(drop_counts.sequences, 1u);
  EXPECT_EQ(drop_counts.tokens_removed, 25u);
}

TEST(Sampler, DocumentOfFindsThePiecesDocument) {
  const LengthTrace trace = make_trace({5, 25, 10});
  Sampler sampler(trace, by_tokens(100, 10, OverContext::split));
  EXPECT_EQ(sampler.ids_per_epoch(), 5u);
  const std::uint64_t expected[] = {0, 1, 1, 1, 2, 0, 1, 1, 1, 2};
  for (std::uint64_t id = 0; id < 10; ++id) EXPECT_EQ(sampler.document_of(id), expected[id]);
}

std::vector<std::uint64_t> id_log(Sampler& sampler, int batches) {
  std::vector<std::uint64_t> log;
  for (int i = 0; i < batches; ++i) {
    const Batch batch = sampler.next();
    log.insert(log.end(), batch.ids.begin(), batch.ids.end());
    for (const std::uint32_t length : batch.lengths) log.push_back(length);
  }
  return log;
}

// G01: stop + resume gives the log of the straight run, also at an exact epoch end.
TEST(Sampler, ResumeContinuesTheStraightRun) {
  LengthTrace trace = counting_trace(1000);
  struct Case {
    SamplerOptions options;
    int stop;
  };
  std::vector<Case> cases = {{by_sequences(128), 8},
                             {by_sequences(100), 10},
                             {by_sequences(1000), 1},
                             {by_tokens(3000), 7},
                             {by_tokens(333, 40, OverContext::split), 50},
                             {by_tokens(333, 40, OverContext::drop), 60}};
  for (std::uint64_t at = 1; at < 30; ++at) {
    cases.push_back({by_tokens(90, 30, OverContext::split), static_cast<int>(at)});
  }
  for (const Case& c : cases) {
    Sampler straight(trace, c.options);
    std::vector<std::uint64_t> expected = id_log(straight, c.stop + 20);
    Sampler before(trace, c.options);
    std::vector<std::uint64_t> log = id_log(before, c.stop);
    const Json stored = Json::parse(to_text(to_json(before.position())));
    Sampler after(trace, c.options);
    after.next();
    after.seek(sampler_position_from_json(stored, "checkpoint.json"));
    const std::vector<std::uint64_t> rest = id_log(after, 20);
    log.insert(log.end(), rest.begin(), rest.end());
    EXPECT_EQ(log, expected) << c.stop;
    EXPECT_EQ(to_json(after.position()), to_json(straight.position()));
  }
}

TEST(Sampler, PositionAfterEightOf128IsTwentyFourIntoTheSecondEpoch) {
  const LengthTrace trace = counting_trace(1000);
  Sampler sampler(trace, by_sequences(128));
  id_log(sampler, 8);
  EXPECT_EQ(sampler.position().epoch, 1u);
  EXPECT_EQ(sampler.position().next_in_epoch, 24u);
}

TEST(Sampler, ImpossiblePositionsAreRefused) {
  const LengthTrace trace = make_trace({5, 25, 10});
  Sampler sampler(trace, by_tokens(100, 10, OverContext::split));
  SamplerPosition position;
  position.next_in_epoch = 4;
  EXPECT_THROW(sampler.seek(position), InputError);
  position.next_in_epoch = 0;
  position.offset_in_document = 7;
  EXPECT_THROW(sampler.seek(position), InputError);
  position.offset_in_document = 1000;
  EXPECT_THROW(sampler.seek(position), InputError);
  EXPECT_THROW(sampler_position_from_json(Json::parse(R"({"epoch": -1})"), "f"), InputError);
  EXPECT_THROW(sampler_position_from_json(Json::parse(R"([1])"), "f"), InputError);
}

TEST(Sampler, ContradictoryOptionsAreRefused) {
  const LengthTrace trace = make_trace({5});
  EXPECT_NE(error_of(trace, SamplerOptions{}), "accepted");
  SamplerOptions both = by_tokens(5);
  both.sequences_per_batch = 3;
  EXPECT_NE(error_of(trace, both), "accepted");
  SamplerOptions exact = by_sequences(3);
  exact.exact_tokens = true;
  EXPECT_NE(error_of(trace, exact), "accepted");
  EXPECT_NE(error_of(make_trace({}), by_tokens(5)), "accepted");
  EXPECT_NE(error_of(make_trace({7, 0}), by_tokens(5)), "accepted");
  const std::string message = error_of(trace, by_tokens(5, 4, OverContext::drop));
  EXPECT_NE(message.find("dropped"), std::string::npos) << message;
}

TEST(Sampler, PolicyNames) {
  EXPECT_EQ(parse_over_context("error"), OverContext::error);
  EXPECT_EQ(parse_over_context("truncate"), OverContext::truncate);
  EXPECT_EQ(parse_over_context("split"), OverContext::split);
  EXPECT_EQ(parse_over_context("drop"), OverContext::drop);
  EXPECT_THROW(parse_over_context("cut"), InputError);
}

}  // namespace
}  // namespace hydraulis
