#include "data/byte_tokenizer.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

TEST(ByteTokenizer, TokensAreBytes) {
  EXPECT_EQ(ByteTokenizer::encode(std::string("A\0\xFFz", 4)), (std::vector<Token>{65, 0, 255, 122}));
  EXPECT_TRUE(rc::check("any text comes back", [](const std::string& text) {
    RC_ASSERT(ByteTokenizer::decode(ByteTokenizer::encode(text)) == text);
  }));
}

TEST(ByteTokenizer, TokensThatAreNoBytesAreRefused) {
  for (const Token token : {-1, 256, 128000}) {
    EXPECT_THROW(ByteTokenizer::decode(std::vector<Token>{65, token}), UsageError);
  }
}

}  // namespace
}  // namespace lockstep::data
