// What the devices' presets say beside their memory.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The data sheet's figure stands there, and what a driver shows is named: in MiB, in bytes, and above it.
TEST(DeviceNotes, NameWhatDriversShowBesideTheMemory) {
  const std::regex key("((?:#[^\n]*\n)+)memory_bytes = ([0-9.e]+)\n");
  const std::regex shown("NVML shows more, ([0-9]+),([0-9]+) MiB = ([0-9.]+)e9 bytes");
  int devices = 0, figures = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "configs/presets/devices")) {
    ++devices;
    const std::string text = content(entry.path());
    std::smatch found, mib;
    ASSERT_TRUE(std::regex_search(text, found, key)) << entry.path();
    const std::string note = found[1];
    EXPECT_NE(note.find("NVML shows"), std::string::npos) << entry.path();
    EXPECT_NE(note.find("set cluster.memory_bytes."), std::string::npos) << entry.path();
    if (!std::regex_search(note, mib, shown)) continue;
    ++figures;
    const double bytes = std::stod(mib[1].str() + mib[2].str()) * 1048576;
    EXPECT_NEAR(bytes, std::stod(mib[3]) * 1e9, 0.05e9) << entry.path();
    EXPECT_GT(bytes, std::stod(found[2])) << entry.path();
  }
  EXPECT_EQ(devices, 6);
  EXPECT_EQ(figures, 3);
}

}  // namespace
}  // namespace lockstep::config
