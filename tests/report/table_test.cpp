#include "report/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace hydraulis {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Table example() {
  return {"Systems",
          {{"name", "policy", 0, Align::left}, {"mean_ms", "mean ms", 1}, {"tokens", "tokens", 0}},
          {{std::string("static-pack"), 12345.678, std::int64_t{200000}},
           {std::string("hydraulis"), 987.04, std::monostate{}}},
          {"assumed: 200 Gb/s a device"}};
}

TEST(Table, TextIsAlignedUnderItsHeadings) {
  EXPECT_EQ(to_text(example()),
            "Systems\n"
            "policy        mean ms   tokens\n"
            "-----------  --------  -------\n"
            "static-pack  12,345.7  200,000\n"
            "hydraulis       987.0        -\n"
            "assumed: 200 Gb/s a device\n");
}

TEST(Table, CsvKeepsFullPrecisionAndLeavesMissingCellsEmpty) {
  EXPECT_EQ(to_csv(example()),
            "name,mean_ms,tokens\nstatic-pack,12345.678,200000\nhydraulis,987.04,\n");
}

TEST(Table, CsvQuotesSeparatorsQuotesAndLineBreaks) {
  const Table table{"",
                    {{"a", "a"}, {"b", "b"}, {"c", "c"}},
                    {{std::string("x,y"), std::string("say \"hi\""), std::string("two\nlines")}},
                    {}};
  EXPECT_EQ(to_csv(table), "a,b,c\n\"x,y\",\"say \"\"hi\"\"\",\"two\nlines\"\n");
}

TEST(Table, JsonRowsAreKeyedByColumnInOrder) {
  EXPECT_EQ(to_json(example()).dump(),
            R"([{"name":"static-pack","mean_ms":12345.678,"tokens":200000},)"
            R"({"name":"hydraulis","mean_ms":987.04,"tokens":null}])");
}

TEST(Table, NumbersThatAreNotFiniteAreNeverPrinted) {
  const Table table{"", {{"a", "a"}, {"b", "b"}, {"c", "c"}}, {{kNaN, kInfinity, -kInfinity}}, {}};
  EXPECT_EQ(to_csv(table), "a,b,c\n,,\n");
  EXPECT_EQ(to_json(table).dump(), R"([{"a":null,"b":null,"c":null}])");
  EXPECT_EQ(to_text(table), "a  b  c\n-  -  -\n-  -  -\n");
}

TEST(Table, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(display_width("naïve"), 5u);
  EXPECT_EQ(display_width("⟨1,16,1⟩"), 8u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u);      // combining acute accent
  EXPECT_EQ(display_width("日本"), 4u);           // two cells each
  EXPECT_EQ(display_width("a\xFF\xE2\x82"), 4u);  // malformed bytes: one each
  const Table table{
      "",
      {{"s", "strategy", 0, Align::left}, {"n", "n", 0}},
      {{std::string("⟨1,16,1⟩×4"), std::int64_t{1}}, {std::string("(1,16,1)x4"), std::int64_t{22}}},
      {}};
  EXPECT_EQ(to_text(table), "strategy     n\n----------  --\n⟨1,16,1⟩×4   1\n(1,16,1)x4  22\n");
}

TEST(Table, ControlCharactersDoNotReachTheTerminal) {
  const Table table{"", {{"a", "a", 0, Align::left}}, {{std::string("x\x1b[2J\ny")}}, {}};
  EXPECT_EQ(to_text(table), "a\n-------\nx [2J y\n");
}

TEST(Table, EmptyTablesStillHaveTheirHeader) {
  const Table table{"", {{"a", "a ms"}}, {}, {}};
  EXPECT_EQ(to_text(table), "a ms\n----\n");
  EXPECT_EQ(to_csv(table), "a\n");
  EXPECT_EQ(to_json(table).dump(), "[]");
}

TEST(Table, RowsOfTheWrongLengthAreAProgrammingError) {
  const Table table{"t", {{"a", "a"}}, {{1.0, 2.0}}, {}};
  EXPECT_THROW(to_text(table), std::logic_error);
  EXPECT_THROW(to_csv(table), std::logic_error);
  EXPECT_THROW(to_json(table), std::logic_error);
}

TEST(GroupedNumber, GroupsThousandsAndRounds) {
  EXPECT_EQ(grouped_number(0, 0), "0");
  EXPECT_EQ(grouped_number(999.5, 0), "1,000");
  EXPECT_EQ(grouped_number(1234567.891, 2), "1,234,567.89");
  EXPECT_EQ(grouped_number(-1234.5, 1), "-1,234.5");
  EXPECT_EQ(grouped_number(-123.0, 1), "-123.0");
  EXPECT_EQ(grouped_number(-0.01, 1), "0.0");
  EXPECT_EQ(grouped_number(kNaN, 1), "-");
}

}  // namespace
}  // namespace hydraulis
