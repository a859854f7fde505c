#include "plan/chart.hpp"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

TEST(Chart, ReachesItsTopWhereTheValueIsHighest) {
  EXPECT_EQ(chart_text({0, 20e9, 40e9, 20e9}, "B"),
            "  40.0 GB    █\n"
            "             █\n"
            "            ▄█▄\n"
            "            ███\n"
            "      0 B   ███\n");
}

TEST(Chart, ManyValuesShareColumnsByTheHighest) {
  std::vector<double> values(7200, 1);
  values[4000] = 5;
  const std::string chart = chart_text(values, "B");
  const std::string first = chart.substr(0, chart.find('\n'));
  EXPECT_EQ(first, "  5.00 B  " + std::string(40, ' ') + "█");
}

TEST(Chart, OfNothing) {
  EXPECT_EQ(chart_text({}, "B"), "");
  EXPECT_EQ(chart_text({0, 0}, "B"), "  0 B\n\n\n\n  0 B\n");
}

}  // namespace
}  // namespace lockstep::plan
