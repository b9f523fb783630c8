#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace hydraulis {

/// The call throws `E` and its one line contains every part.
template <typename E, typename Call>
void expect_error(Call call, const std::vector<std::string>& parts) {
  try {
    call();
    FAIL() << "nothing was thrown";
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
    }
  }
}

}  // namespace hydraulis
