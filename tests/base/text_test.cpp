#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/json.hpp"

namespace lockstep {
namespace {

TEST(EditDistance, KnownPairs) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("layesr", "layers"), 1u);  // a swap of neighbours is one edit
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);         // optimal string alignment, not full Damerau (2)
  EXPECT_EQ(edit_distance("head", "heads"), 1u);
}

TEST(EditDistance, NearestName) {
  const std::vector<std::string> names = {"layers", "hidden", "heads", "kv_heads"};
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("kvheads", names), "kv_heads");
  EXPECT_EQ(nearest_name("hiden", names), "hidden");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Json, KeepsOrderAndReadsBackExactly) {
  Json json;
  json["zeta"] = 0.1;
  json["alpha"] = 1.0 / 3;
  EXPECT_EQ(json.dump().find("zeta"), 2u);
  EXPECT_EQ(Json::parse(json.dump())["alpha"].get<double>(), 1.0 / 3);
}

}  // namespace
}  // namespace lockstep
