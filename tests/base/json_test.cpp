#include "base/json.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

void expect_refused(const std::function<void()>& action, const std::string& part) {
  const std::string message = message_of<InputError>(action);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(JsonFields, ReadsEveryKind) {
  const Json json = Json::parse(
      R"({"text":"x","number":1.5,"whole":7,"flag":true,"nested":{"a":[1]},"later":null})");
  JsonFields fields(json, "f.json", "");
  EXPECT_EQ(fields.text("text"), "x");
  EXPECT_EQ(fields.text_or("absent", "y"), "y");
  EXPECT_EQ(fields.number("number"), 1.5);
  EXPECT_EQ(fields.number("whole"), 7.0);
  EXPECT_EQ(fields.number_or("absent", 2.5), 2.5);
  EXPECT_EQ(fields.positive("number"), 1.5);
  EXPECT_EQ(fields.integer("whole", 7, 7), 7);
  EXPECT_EQ(fields.integer_or("absent", 3, 0, 9), 3);
  EXPECT_TRUE(fields.boolean_or("flag", false));
  EXPECT_TRUE(fields.boolean_or("absent", true));
  EXPECT_EQ(fields.at("nested").at("a").size(), 1u);
  fields.ignore("later");
  EXPECT_NO_THROW(fields.finish());
}

TEST(JsonFields, NamesFileFieldAndWhatWasExpected) {
  const Json json = Json::parse(R"({"text":1,"number":"1","whole":1.5,"flag":1,"none":null,
      "zero":0,"negative":-2,"huge":18446744073709551615,"yes":true})");
  JsonFields f(json, "f.json", "node");
  expect_refused([&] { f.text("text"); }, "f.json: field 'node.text' is number, expected a string");
  expect_refused([&] { f.text("absent"); }, "f.json: field 'node.absent' is missing");
  expect_refused([&] { f.number("number"); }, "is string, expected a number");
  expect_refused([&] { f.number("none"); }, "is null, expected a number");
  expect_refused([&] { f.number("yes"); }, "is boolean, expected a number");
  expect_refused([&] { f.positive("zero"); }, "expected more than 0");
  expect_refused([&] { f.positive("negative"); }, "is -2, expected more than 0");
  expect_refused([&] { f.integer("whole", 0, 9); }, "is 1.5, expected an integer");
  expect_refused([&] { f.integer("yes", 0, 9); }, "expected an integer");
  expect_refused([&] { f.integer("negative", 0, 9); }, "is -2, expected 0 to 9");
  expect_refused([&] { f.integer("huge", 0, 9); }, "is 18446744073709551615, expected 0 to 9");
  expect_refused([&] { f.integer_or("none", 1, 0, 9); }, "is null, expected an integer");
  expect_refused([&] { f.boolean_or("flag", true); }, "expected true or false");
}

TEST(JsonFields, RefusesFieldsNobodyAskedFor) {
  const Json json = Json::parse(R"({"layers":2,"layrs":3})");
  JsonFields fields(json, "f.json", "");
  fields.integer("layers", 0, 9);
  expect_refused([&] { fields.finish(); }, "f.json: field 'layrs' is not known here");
}

TEST(JsonFields, RefusesWhatIsNotAnObject) {
  const Json list = Json::array();
  expect_refused([&] { JsonFields(list, "f.json", ""); },
                 "f.json: the document is array, expected an object");
  expect_refused([&] { JsonFields(list, "f.json", "a.b"); }, "field 'a.b' is array");
}

TEST(ReadJsonFile, SaysWhereTheTextIsWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& part) {
    const auto path = folder.write("f.json", text);
    expect_refused([&] { read_json_file(path); }, part);
  };
  refused("{\n  \"a\": 1,\n}", "line 3");
  refused("", "not valid JSON");
  refused("{\"a\": 1", "not valid JSON");
  refused("{} {}", "not valid JSON");
  refused("{\"a\": NaN}", "not valid JSON");
  refused("{\"a\": 1e999}", "not valid JSON");
  refused("\xff\xfe", "not valid JSON");
  expect_refused([&] { read_json_file(folder / "none.json"); }, "none.json: cannot open");
}

TEST(ReadJsonFile, AFieldGivenTwiceIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& part) {
    const auto path = folder.write("f.json", text);
    expect_refused([&] { read_json_file(path); }, part);
  };
  refused(R"({"a": 1, "b": 2, "a": 1})", "f.json: field 'a' is given twice");
  refused(R"({"a": {"b": 1}, "c": [0, [], {"d": {}, "d": 1}]})", "field 'c[2].d' is given twice");
  refused(R"([{"x": 1}, {"x": 1, "\u0078": 2}])", "field '[1].x' is given twice");
  const auto fine = folder.write("f.json", R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 1}})");
  EXPECT_EQ(read_json_file(fine).at("a").at("a")[1].at("a"), 2);
}

TEST(ReadJsonFile, DeepNestingIsNoCrash) {
  const TemporaryFolder folder;
  constexpr std::size_t kDepth = 1000000;
  const auto path = folder.write("deep.json", std::string(kDepth, '['));
  expect_refused([&] { read_json_file(path); }, "deep.json");
  const auto closed =
      folder.write("closed.json", std::string(kDepth, '[') + std::string(kDepth, ']'));
  expect_refused([&] { read_json_file(closed); }, "closed.json: nested more than 1000 levels deep");
  const auto fine = folder.write("fine.json", std::string(1000, '[') + std::string(1000, ']'));
  EXPECT_TRUE(read_json_file(fine).is_array());
}

TEST(JsonText, NeverHoldsNaNOrInfinity) {
  const Json json = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                     {"inf", std::numeric_limits<double>::infinity()},
                     {"bytes", "a\xff"}};
  const std::string text = to_text(json);
  EXPECT_EQ(text.back(), '\n');
  const Json again = Json::parse(text);
  EXPECT_TRUE(again.at("nan").is_null());
  EXPECT_TRUE(again.at("inf").is_null());
  EXPECT_EQ(again.at("bytes"), "a\xEF\xBF\xBD");
}

TEST(JsonText, KeepsTheOrderAndThePrecision) {
  Json json;
  json["z"] = 0.1 + 0.2;
  json["a"] = 1;
  const std::string text = to_text(json);
  EXPECT_LT(text.find("\"z\""), text.find("\"a\""));
  EXPECT_EQ(Json::parse(text).at("z").get<double>(), 0.1 + 0.2);
}

}  // namespace
}  // namespace hydraulis
