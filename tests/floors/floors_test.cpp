// The building's statics: which room may include which, which library is seen where, file sizes, formatting.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path source = LOCKSTEP_SOURCE_DIR;
constexpr size_t most_lines = 400;

// A file includes only from its own folder and from floors below it.
const std::map<std::string, int> floors = {
    {"base", 1},                                                            //
    {"config", 2},   {"observe", 2},                                        //
    {"model", 3},    {"cluster", 3}, {"collective", 3},                     //
    {"parallel", 4},                                                        //
    {"cost", 5},     {"comm", 5},    {"data", 5},                           //
    {"plan", 6},     {"sim", 6},     {"nn", 6},         {"resilience", 6},  //
    {"train", 7},    {"serve", 7},   {"validate", 7},   {"facts", 7},       //
    {"cli", 8},      {"worker", 8},
};
const std::set<std::string> torch_rooms = {"nn", "train", "worker"};

// Heavy or foreign headers, and the only files of src that may include them.
struct Confined {
  std::string header;  // a prefix of the include
  std::set<std::string> files;
};
const std::vector<Confined> confined = {
    {"nlohmann/json.hpp", {"base/json.hpp"}},
    {"nlohmann/json_fwd.hpp", {"base/json_fwd.hpp"}},
    {"CLI/", {"cli/flags.cpp"}},
    {"toml++/", {"config/toml_source.cpp"}},
    {"toml.hpp", {}},
    {"sqlite3.h", {"observe/database.cpp", "observe/run_store.cpp"}},
};

std::string read(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> code_files(const std::vector<std::string>& folders) {
  std::vector<fs::path> out;
  for (const std::string& folder : folders) {
    if (!fs::exists(source / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      const auto ending = entry.path().extension();
      if (ending == ".cpp" || ending == ".hpp") out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What is wrong with the includes of a file `name` ("room/file.cpp") with this text.
std::vector<std::string> violations(const std::string& name, const std::string& text) {
  static const std::regex include(R"re(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])re",
                                  std::regex::ECMAScript | std::regex::multiline);
  const std::string room = name.substr(0, name.find('/'));
  std::vector<std::string> out;
  if (!floors.contains(room)) return {name + ": the room " + room + " has no floor"};
  for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
    const std::string kind = (*it)[1], target = (*it)[2];
    const std::string what = name + " includes " + target;
    const std::string other = target.substr(0, target.find('/'));
    if (kind == "\"") {
      if (!floors.contains(other)) {
        out.push_back(what + ": no such room");
      } else if (other != room && floors.at(other) >= floors.at(room)) {
        out.push_back(what + ": not below its own floor");
      }
      continue;
    }
    const bool torch = other == "ATen" || other == "torch" || other == "c10";
    if (torch && !torch_rooms.contains(room)) out.push_back(what + ": the room may not see LibTorch");
    for (const Confined& rule : confined) {
      if (target.starts_with(rule.header) && !rule.files.contains(name)) {
        out.push_back(what + ": confined to another file");
      }
    }
  }
  return out;
}

TEST(Floors, FilesIncludeOnlyFromTheirOwnRoomAndFloorsBelow) {
  size_t files = 0;
  for (const fs::path& file : code_files({"src"})) {
    ++files;
    for (const std::string& problem : violations(fs::relative(file, source / "src"), read(file))) {
      ADD_FAILURE() << problem;
    }
  }
  EXPECT_GT(files, 50u) << "the sources were not found";
}

TEST(Floors, EveryIncludedFileOfOursExists) {
  static const std::regex include("#include \"([^\"]+)\"");
  for (const fs::path& file : code_files({"src"})) {
    const std::string text = read(file);
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      EXPECT_TRUE(fs::exists(source / "src" / (*it)[1].str())) << file << " includes " << (*it)[1];
    }
  }
}

// The rules themselves: they find what they are meant to find, and nothing else.
TEST(Floors, TheRulesBite) {
  EXPECT_TRUE(violations("cli/a.cpp", "#include \"base/error.hpp\"\n#include <vector>\n").empty());
  EXPECT_TRUE(violations("sim/a.cpp", "#include \"sim/b.hpp\"\n#include \"parallel/mesh.hpp\"\n").empty());
  EXPECT_TRUE(violations("nn/a.cpp", "#include <ATen/ATen.h>\n").empty());
  EXPECT_TRUE(violations("base/a.hpp", "// see #include \"cli/a.hpp\"\n").empty());
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"base/a.hpp", "#include \"config/run_file.hpp\"\n"},       // upwards
           {"sim/a.cpp", "#include \"plan/memory.hpp\"\n"},            // sideways
           {"sim/a.cpp", "int x;\n  #  include \"cli/flags.hpp\"\n"},  // further down, spaced
           {"cli/a.cpp", "#include \"nn/head.hpp\"\n#include <ATen/ATen.h>\n"},
           {"cli/a.cpp", "#include <CLI/CLI.hpp>\n"},
           {"cli/a.cpp", "#include \"a.hpp\"\n"},
           {"attic/a.cpp", ""}}) {
    EXPECT_EQ(violations(name, text).size(), 1u) << name << ": " << text;
  }
}

// `lockstep` is linked from rooms that do not see LibTorch, so none of them may include one that does.
TEST(Floors, RoomsWithoutLibTorchDoNotIncludeRoomsWithIt) {
  for (const fs::path& file : code_files({"src"})) {
    const std::string room = fs::relative(file, source / "src").begin()->string();
    if (torch_rooms.contains(room)) continue;
    for (const std::string& other : torch_rooms) {
      EXPECT_EQ(read(file).find("#include \"" + other + "/"), std::string::npos) << file;
    }
  }
}

TEST(Files, StayUnderFourHundredLines) {
  for (const fs::path& file : code_files({"src", "tests", "bench"})) {
    const std::string text = read(file);
    const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_LE(lines, most_lines) << file;
  }
}

TEST(Files, AreFormatted) {
  if (std::system("command -v clang-format >/dev/null") != 0) GTEST_SKIP() << "clang-format is not installed";
  std::string command = "clang-format --dry-run -Werror";
  for (const fs::path& file : code_files({"src", "tests", "bench"})) command += " '" + file.string() + "'";
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << "`make format` formats:\n" << output.substr(0, 4000);
}

}  // namespace
