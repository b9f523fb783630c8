#include "runtime/tensorboard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

TEST(Tensorboard, TheFirstRecordIsThePublishedOne) {
  const TemporaryFolder folder;
  const TensorboardWriter writer(folder / "logs", 0, "run");
  EXPECT_EQ(hex(read_text_file(writer.path())),
            "1800000000000000a37f4b220900000000000000001a0d627261696e2e4576656e743a32eedf28a3");
  EXPECT_EQ(writer.path().filename(), "events.out.tfevents.0000000000.run");
}

TEST(Tensorboard, AScalarIsAnEventWithItsStep) {
  const TemporaryFolder folder;
  std::string head;
  std::string all;
  {
    TensorboardWriter writer(folder.path(), 1.5, "run");
    head = read_text_file(writer.path());
    writer.write(2.0, 300, {{"loss", 0.5}, {"lr", 1e-3}});
    all = read_text_file(writer.path());
  }
  // By hand: wall time 2.0, step 300 = ac 02, summary of two values with tag and float.
  const std::string event =
      "090000000000000040"
      "10ac02"
      "2a18"
      "0a0b"
      "0a046c6f7373"
      "150000003f"
      "0a09"
      "0a026c72"
      "156f12833a";
  ASSERT_EQ(all.substr(0, head.size()), head);
  const std::string record = hex(all.substr(head.size()));
  EXPECT_EQ(record.substr(0, 16), "2600000000000000");  // 38 bytes
  EXPECT_EQ(record.substr(24, event.size()), event);
  EXPECT_EQ(record.size(), 24 + event.size() + 8);
}

TEST(Tensorboard, AnotherFileIsBegunWhenOneStandsThere) {
  const TemporaryFolder folder;
  const TensorboardWriter first(folder.path(), 7, "run");
  const TensorboardWriter second(folder.path(), 7, "run");
  EXPECT_NE(first.path(), second.path());
  folder.write("file", "");
  EXPECT_THROW(TensorboardWriter(folder / "file", 7, "run"), InputError);
}

}  // namespace
}  // namespace hydraulis
