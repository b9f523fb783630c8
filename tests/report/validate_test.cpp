#include "report/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

constexpr const char* kHeading =
    "gpus,global_batch,micro_batch,hidden,heads,layers,sequence_length,tp,dp,pp,iteration_ms\n";

PublicRows rows_of(const std::string& text) {
  const TemporaryFolder folder;
  folder.write("rows.csv", text);
  return read_public_rows(folder / "rows.csv");
}

/// The message of the InputError that reading throws; "" when none.
std::string refusal(const std::string& text) {
  try {
    rows_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

PublicRow row(int hidden, int layers, int tp, int pp, int dp, int micro_batch, int micro_batches) {
  PublicRow result;
  result.model = {"", layers, hidden, 8 * hidden / 3, hidden / 64, hidden / 64, 64, 0};
  result.model.tied_embeddings = true;
  result.tp = tp;
  result.pp = pp;
  result.dp = dp;
  result.micro_batch = micro_batch;
  result.micro_batches = micro_batches;
  result.sequence_length = 2048;
  result.model_name = "h" + std::to_string(hidden);
  return result;
}

double seconds(const PublicRow& row, const PublicDevice& device) {
  return predicted_seconds(public_work(row, device), device.fitted);
}

TEST(ValidateRows, ReadsTheDocumentedColumns) {
  const PublicRows rows = rows_of(std::string(kHeading) + "16,64,2,3072,32,30,2048,4,2,2,1500.5\n");
  ASSERT_EQ(rows.rows.size(), 1u);
  const PublicRow& row = rows.rows[0];
  EXPECT_EQ(row.line, 2);
  EXPECT_EQ(row.micro_batches, 16);
  EXPECT_EQ(row.devices(), 16);
  EXPECT_EQ(row.model.head_dim, 96);
  EXPECT_EQ(row.model.ffn_hidden, 8192);  // two matrices of 12,288 as three of 8,192
  EXPECT_DOUBLE_EQ(row.measured_seconds, 1.5005);
  EXPECT_FALSE(row.measured_bytes);
  EXPECT_EQ(rows.device, "a100-cluster");
  EXPECT_EQ(group_of(row, "model"), "h3072_l30");
  EXPECT_EQ(group_of(row, "gpus"), "16");
}

TEST(ValidateRows, ReadsLayoutsNamedAsSimuMaxDoes) {
  const PublicRows rows = rows_of(
      "case,measured_ms,measured_alloc_gib,other\r\n"
      "llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4_cef,1758,68.43,1\r\n"
      "llama3_405b_l4_tp1_pp2_dp4_mbc8_cef,1935.4,87.08,2\r\n");
  const PublicRow& first = rows.rows[0];
  EXPECT_EQ(first.model.layers, 12);
  EXPECT_EQ(first.model.hidden, 8192);
  EXPECT_EQ(first.cp, 4);
  EXPECT_EQ(first.sequence_length, 32768);
  EXPECT_EQ(first.micro_batches, 4);
  EXPECT_EQ(first.model_name, "llama3_70b");
  EXPECT_DOUBLE_EQ(*first.measured_bytes, 68.43 * 1024 * 1024 * 1024);
  EXPECT_EQ(rows.rows[1].sequence_length, 4096);
  EXPECT_EQ(rows.rows[1].pp, 2);
  EXPECT_EQ(rows.device, "b200");
  EXPECT_EQ(rows.unused_columns, std::vector<std::string>{"other"});
}

TEST(ValidateRows, RefusalsNameFileLineAndColumn) {
  const std::string heading = kHeading;
  const auto expect = [](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find("rows.csv: "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const std::string good = "8,8,1,1024,16,24,1024,1,8,1,100\n";
  expect("", "no rows");
  expect(heading, "no rows");
  expect(heading + good + "8,8,1,1024,16,24,1024,1,8,1\n", "line 3: 10 fields, expected 11");
  expect(heading + "8,8,1,1024,16,24,1024,1,8,1,abc\n", "line 2, column 'iteration_ms': 'abc'");
  expect(heading + "8,8,1,1024,16,24,1024,1,8,1,nan\n", "column 'iteration_ms'");
  expect(heading + "8,8,1,1024,16,24,1024,1,8,1,-5\n", "column 'iteration_ms'");
  expect(heading + "8,8,1.5,1024,16,24,1024,1,8,1,5\n", "column 'micro_batch': '1.5'");
  expect(heading + "8,8,1,1024,15,24,1024,1,8,1,5\n", "column 'heads'");
  expect(heading + "8,9,1,1024,16,24,1024,1,8,1,5\n", "column 'global_batch'");
  expect(heading + "4,8,1,1024,16,24,1024,1,8,1,5\n", "column 'gpus': '4', expected tp x cp x pp");
  expect(heading + "32,1,1,1024,16,24,1024,1,1,32,5\n", "column 'pp'");
  expect(heading + "8,8,1,1024,16,24,1024,99999999,8,1,5\n", "column 'tp'");
  expect(heading + "1048576,1048576,1048576,1048576,1,1,1048576,1,1,1,5\n", "column 'micro_batch'");
  expect("gpus,gpus\n1,2\n", "'gpus' stands there twice");
  expect("gpus,layers\n1,2\n", "line 1: no column iteration_ms");
  expect("case,measured_ms\nmixtral_tp1_mbc4,5\n", "column 'case'");
  expect("case,measured_ms\nllama3_70b_tp1,5\n", "mbcN");
  expect("case,measured_ms\nllama3_70b_l12_tp1048575_pp12_dp99999_mbc1,5\n", "layout of at most");
}

TEST(ValidateRows, ReadsTablesOfNcclTests) {
  const TemporaryFolder folder;
  folder.write("ar.csv",
               "size(B),count,type,time(ns),busbw(GB/s),time(ns)\n1048576,1,float,9e4,1,5\n"
               "2097152,1,float,180000,1,5\n");
  const AllReduceCurve curve = read_all_reduce_table(folder / "ar.csv", 8);
  EXPECT_DOUBLE_EQ(curve.seconds(2097152, 8), 180e-6);
  folder.write("bad.csv", "size(B),time(ns)\n5,1\n5,2\n");
  EXPECT_THROW(read_all_reduce_table(folder / "bad.csv", 8), InputError);
}

// More of anything that costs time costs more.
TEST(ValidateModel, GrowsWithTheWorkAndFallsWithTheDevices) {
  const PublicDevice& device = public_device("a100-cluster");
  const double base = seconds(row(6144, 32, 4, 2, 8, 2, 16), device);
  EXPECT_GT(seconds(row(6144, 48, 4, 2, 8, 2, 16), device), base);
  EXPECT_GT(seconds(row(6144, 32, 4, 2, 8, 2, 32), device), 1.8 * base);
  EXPECT_GT(seconds(row(6144, 32, 4, 2, 8, 4, 16), device), 1.7 * base);
  EXPECT_LT(seconds(row(6144, 32, 8, 2, 8, 2, 16), device), base);
  EXPECT_GT(seconds(row(6144, 32, 8, 2, 8, 2, 16), device), base / 2);
  PublicRow interleaved = row(6144, 32, 4, 8, 8, 2, 16);
  const double plain = seconds(interleaved, device);
  interleaved.interleave = 4;
  EXPECT_LT(seconds(interleaved, device), plain);
  interleaved.recompute = Recompute::none;
  EXPECT_LT(seconds(interleaved, device), 0.85 * plain);
}

// Tiny layers take their launches; across nodes a tensor-parallel group pays for the network.
TEST(ValidateModel, LaunchesBoundSmallLayersAndTheNetworkWideGroups) {
  PublicDevice device = public_device("a100-cluster");
  const PublicRow tiny = row(256, 24, 1, 1, 8, 1, 4);
  const double launches =
      4 * 24 * 4 * device.fitted[static_cast<std::size_t>(PublicParameter::launch)];
  EXPECT_GT(seconds(tiny, device), launches);
  EXPECT_LT(seconds(tiny, device), 1.3 * launches);
  const double inside = public_work(row(3072, 30, 8, 1, 8, 8, 8), device).layer.inter_node_seconds;
  const double across = public_work(row(3072, 30, 16, 1, 4, 8, 8), device).layer.inter_node_seconds;
  EXPECT_EQ(inside, 0);
  // Six all-reduces of 8·2048·3072 bf16 over 16 devices whose nodes have 100 GB/s each.
  EXPECT_NEAR(across, 6 * 2 * 15.0 / 16 * (8 * 2048 * 3072 * 2.0) / 100e9, 1e-9);
}

TEST(ValidateModel, MemoryIsStatesActivationsAndWorkingCopies) {
  const PublicDevice& device = public_device("b200");
  PublicRow row = rows_of("case,measured_ms\nllama3_70b_l12_tp1_pp2_dp4_mbc4,1\n").rows[0];
  PublicValues none = device.fitted;
  none[static_cast<std::size_t>(PublicParameter::layer_copies)] = 0;
  none[static_cast<std::size_t>(PublicParameter::logits)] = 0;
  // First stage: six layers and the embedding; bf16 weights, fp32 gradients, a quarter of the
  // optimizer's 12 bytes; two micro-batches alive.
  const double parameters =
      6 * (2 * 8192.0 * (8192 + 1024) + 3 * 8192.0 * 28672 + 2 * 8192) + 128256.0 * 8192;
  const double activations =
      2 * 6 * 4096 * (8.0 * 8192 + 6.0 * 28672 + 4 * 128 * (64 + 8) + 4 * 64);
  EXPECT_NEAR(predicted_bytes(row, device, none), parameters * (2 + 4 + 3) + activations, 1);
  EXPECT_GT(predicted_bytes(row, device, device.fitted), predicted_bytes(row, device, none));
}

// 6·N·tokens with N = 12·h²·L and the head, and causal attention, by hand.
TEST(ValidateModel, TheFormulaCountsFlopsAndTheBubble) {
  const PublicDevice& device = public_device("a100-cluster");
  PublicRow one = row(3072, 30, 1, 1, 1, 1, 8);
  one.recompute = Recompute::none;
  const double tokens = 8 * 2048.0;
  const double flops =
      6 * tokens * (12.0 * 3072 * 3072 * 30 + 51200.0 * 3072) + 6 * 30 * tokens * 2048 * 3072;
  EXPECT_NEAR(formula_seconds(one, device) / (flops / 312e12), 1, 1e-3);
  PublicRow two = row(3072, 30, 1, 2, 1, 1, 8);
  two.recompute = Recompute::none;
  EXPECT_NEAR(formula_seconds(two, device) / formula_seconds(one, device), (1 + 1.0 / 8) / 2, 1e-9);
}

/// Rows made with parameters that are not the expected ones.
PublicRows made_rows(const PublicDevice& device, PublicValues truth) {
  PublicRows rows;
  rows.path = "made";
  for (const int hidden : {3072, 6144, 8192, 12288}) {
    for (const int tp : {1, 2, 4, 8, 16}) {
      for (const int micro_batch : {1, 4}) {
        for (const int pp : {1, 4}) {
          PublicRow next = row(hidden, 32, tp, pp, 4, micro_batch, 8);
          next.measured_seconds = predicted_seconds(public_work(next, device), truth);
          rows.rows.push_back(next);
        }
      }
    }
  }
  return rows;
}

TEST(Validate, LeavingOneOutFindsTheParametersFromTheOtherRows) {
  const PublicDevice& device = public_device("a100-cluster");
  PublicValues truth = device.expected;
  truth[static_cast<std::size_t>(PublicParameter::gemm)] = 1.8;
  truth[static_cast<std::size_t>(PublicParameter::inter_node)] = 2.5;
  truth[static_cast<std::size_t>(PublicParameter::launch)] = 2e-3;
  const PublicRows rows = made_rows(device, truth);
  const Validation result = validate(rows, device, {.leave_one_out = "model"});
  ASSERT_EQ(result.fits.size(), 4u);
  EXPECT_EQ(result.fits[0].rows, 60u);
  const Json json = validate_report(rows, device, result).json;
  EXPECT_LT(json.at("mean_abs_error").get<double>(), 0.02);
  EXPECT_GT(json.at("formula_mean_abs_error").get<double>(), 0.1);
  EXPECT_EQ(json.at("rows").size(), 80u);
  EXPECT_EQ(json.at("totals").size(), 5u);
  EXPECT_EQ(json.at("parameters").size(), device.times.size() + 1);
}

// A row's own measurement must not reach its prediction.
TEST(Validate, WhatIsLeftOutIsNotSeen) {
  const PublicDevice& device = public_device("a100-cluster");
  PublicRows rows = made_rows(device, device.expected);
  const double before = validate(rows, device, {.leave_one_out = "model"}).predictions[0].seconds;
  for (PublicRow& row : rows.rows) {
    if (row.model_name == "h3072") row.measured_seconds *= 5;
  }
  EXPECT_EQ(validate(rows, device, {.leave_one_out = "model"}).predictions[0].seconds, before);
}

TEST(Validate, OneGroupCannotBeLeftOut) {
  const PublicDevice& device = public_device("a100-cluster");
  PublicRows rows = made_rows(device, device.expected);
  rows.rows.resize(3);
  EXPECT_THROW(validate(rows, device, {.leave_one_out = "model"}), InputError);
}

// Times of arXiv:2205.05198 (table 5), which no parameter was fitted to.
TEST(Validate, PredictsPublishedMegatronRunsFrom22BTo1T) {
  const PublicRows rows =
      read_public_rows(HYDRAULIS_SOURCE_DIR "/experiments/validation/a100_selene.csv");
  const PublicDevice& device = public_device("a100-cluster");
  ASSERT_EQ(rows.rows.size(), 8u);
  const Json json = validate_report(rows, device, validate(rows, device, {})).json;
  EXPECT_LT(json.at("mean_abs_error").get<double>(), 0.06);
  for (const Json& row : json.at("rows")) {
    EXPECT_LT(std::abs(row.at("error").get<double>()), 0.10) << row.dump();
  }
}

}  // namespace
}  // namespace hydraulis
