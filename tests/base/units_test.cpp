#include "base/units.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(65.12e9), "65.1 GB");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(6.49e12), "6.49 TB");
  EXPECT_EQ(format_bytes(999.7e6), "1.00 GB");
  EXPECT_EQ(format_bytes(999.4e6), "999 MB");
}

TEST(Units, BinaryBytes) {
  EXPECT_EQ(format_binary_bytes(1.2 * 1073741824.0), "1.2GiB");
  EXPECT_EQ(format_binary_bytes(512.0 * 1048576), "512MiB");
  EXPECT_EQ(format_binary_bytes(1023.9 * 1048576), "1.0GiB");
  EXPECT_EQ(format_binary_bytes(99.96 * 1024), "100KiB");
  EXPECT_EQ(format_binary_bytes(1023), "1023B");
  EXPECT_EQ(format_binary_bytes(1024), "1.0KiB");
  EXPECT_EQ(format_binary_bytes(0), "0B");
}

TEST(Units, Seconds) {
  EXPECT_EQ(format_seconds(6.2), "6.20 s");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(450e-6), "450 µs");
  EXPECT_EQ(format_seconds(3.5e-9), "3.50 ns");
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(5410.4), "5,410 s");
  EXPECT_EQ(format_seconds(999.6), "1,000 s");
  EXPECT_EQ(format_seconds(999.4), "999 s");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(16777216), "16.8M");
  EXPECT_EQ(format_count(405853388800.0), "406B");
  EXPECT_EQ(format_count(15.6e12), "15.6T");
  EXPECT_EQ(format_count(126), "126");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(2.5), "2.50");
  EXPECT_EQ(format_count(3.79e25), "3.79e25");
  EXPECT_EQ(format_count(-16777216), "-16.8M");
}

TEST(Units, Quantities) {
  EXPECT_EQ(format_quantity(17.1e6, "W"), "17.1 MW");
  EXPECT_EQ(format_quantity(400e12, "FLOP/s"), "400 TFLOP/s");
  EXPECT_EQ(format_quantity(-0.0015, "V"), "-1.50 mV");
  EXPECT_EQ(format_quantity(3.79e25, "FLOP"), "3.79e25 FLOP");
  EXPECT_EQ(format_quantity(std::numeric_limits<double>::infinity(), "s"), "inf s");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration(192), "0:03:12");
  EXPECT_EQ(format_duration(0), "0:00:00");
  EXPECT_EQ(format_duration(3599.6), "1:00:00");
  EXPECT_EQ(format_duration(360000), "100:00:00");
  EXPECT_EQ(format_duration(-61), "-0:01:01");
  EXPECT_EQ(format_duration(std::nan("")), "-:--:--");
}

TEST(Units, Thousands) {
  EXPECT_EQ(format_thousands(5410), "5,410");
  EXPECT_EQ(format_thousands(0), "0");
  EXPECT_EQ(format_thousands(999), "999");
  EXPECT_EQ(format_thousands(-123456), "-123,456");
  EXPECT_EQ(format_thousands(405853388800), "405,853,388,800");
  EXPECT_EQ(format_thousands(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace lockstep
