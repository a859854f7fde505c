// Rows of a CSV as they are read: cells, columns, and the rule by which rows are kept out of fitting.
#include "validate/measurement.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::validate {
namespace {

const std::string header = "source,model,layers,hidden,heads,seq,gpu,n_gpus,global_batch_seqs";

TEST(Measurements, CellsAreReadAndEmptyOnesAreUnknown) {
  const Measurements m = read_measurements(
      header +
          ",zero_stage,step_time_s,memory_gib,tp\nA,\"B, C\", 24 ,2048.0,16,4096,H100,48,192,0,1.5e-1,,\n",
      "f");
  ASSERT_EQ(m.rows.size(), 1u);
  const Measurement& row = m.rows[0];
  EXPECT_EQ(row.row, 1);
  EXPECT_EQ(row.line, 2);
  EXPECT_EQ(row.model, "B, C");
  EXPECT_EQ(row.layers, 24);
  EXPECT_EQ(row.hidden, 2048);
  EXPECT_EQ(row.zero, 0);
  EXPECT_EQ(row.step_seconds, 0.15);
  EXPECT_EQ(row.memory_gib, std::nullopt);
  EXPECT_EQ(row.tp, std::nullopt);
  EXPECT_TRUE(row.unreadable.empty());
}

TEST(Measurements, UnreadableCellsAreNamed) {
  const Measurements m = read_measurements(
      header + ",micro_batch,step_time_s\nA,B,24,2e3x,16,4096.5,H100,0,192,(local 32),-1\nA,B,24\n", "f");
  ASSERT_EQ(m.rows.size(), 2u);
  std::vector<std::string> wrong = {"hidden = \"2e3x\" is not a whole number from 1 to 1,000,000",
                                    "seq = \"4096.5\" is not a whole number from 1 to 1,000,000,000",
                                    "n_gpus = \"0\" is not a whole number from 1 to 1,000,000",
                                    "micro_batch = \"(local 32)\" is not a whole number from 1 to 1,000,000",
                                    "step_time_s = \"-1\" is not a number above 0"};
  for (std::string& clause : wrong) clause += ": correct the cell, or leave it empty";
  std::vector<std::string> found = m.rows[0].unreadable;
  EXPECT_TRUE(std::is_permutation(found.begin(), found.end(), wrong.begin(), wrong.end()))
      << testing::PrintToString(found);
  EXPECT_EQ(m.rows[1].unreadable, std::vector<std::string>{"it has 3 cells under 11 columns"});
}

TEST(Measurements, ShareOfThePeakAndTimesHaveTheirRanges) {
  const auto wrong = [](const std::string& column, const std::string& cell) {
    return read_measurements(header + "," + column + "\nA,B,24,2048,16,4096,H100,48,192," + cell + "\n", "f")
        .rows.at(0)
        .unreadable;
  };
  EXPECT_TRUE(wrong("mfu_pct", "100").empty());
  EXPECT_TRUE(wrong("zero_stage", "0").empty());
  const std::string then = ": correct the cell, or leave it empty";
  EXPECT_EQ(wrong("mfu_pct", "250"),
            std::vector<std::string>{"mfu_pct = \"250\" is not a percentage above 0 and up to 100" + then});
  EXPECT_EQ(wrong("zero_stage", "-1"),
            std::vector<std::string>{"zero_stage = \"-1\" is not a whole number from 0 to 1,000,000" + then});
  for (const char* column : {"step_time_s", "tflops_per_gpu", "memory_gib", "params_b"}) {
    for (const char* cell : {"0", "-3", "nan", "inf"}) {
      EXPECT_EQ(wrong(column, cell), std::vector<std::string>{std::string(column) + " = \"" + cell +
                                                              "\" is not a number above 0" + then});
    }
  }
}

TEST(Measurements, TextsAreEscaped) {
  const Measurements m =
      read_measurements(header + ",\x1B[31mx\nA\xFF,B\x1B[2J,24,2048,16,4096,\"H1\n00\",48,192,1\n", "f");
  EXPECT_EQ(m.rows.at(0).source, "A\\xFF");
  EXPECT_EQ(m.rows.at(0).model, "B\\x1B[2J");
  EXPECT_EQ(m.rows.at(0).gpu, "H1\\x0A00");
  EXPECT_EQ(m.unknown_columns, std::vector<std::string>{"\\x1B[31mx"});
}

TEST(Measurements, UnknownColumnsAreNamedAndMissingOnesRefused) {
  EXPECT_EQ(read_measurements(header + ",power_mw\n", "f").unknown_columns,
            std::vector<std::string>{"power_mw"});
  try {
    read_measurements("source,model,layer,hidden,heads,seq,gpu,n_gpus,global_batch_seqs\n", "f.csv");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "f.csv: there is no column layers; is it \"layer\"?");
  }
}

// FNV-1a's published values: "" is the offset basis, "a" is af63dc4c8601ec8c.
TEST(Measurements, TheHashIsFnv1aOfTheCells) {
  const Measurements m = read_measurements(header + "\na\n", "f");
  EXPECT_EQ(m.rows.at(0).hash, 0xaf63dc4c8601ec8cu);
}

TEST(HeldOut, IsAFifthOfEverySourceWhateverTheOrderOfRows) {
  std::string text = header + "\n", backwards = header + "\n";
  std::vector<std::string> lines;
  for (int i = 0; i < 40; ++i) {
    const std::string source = i < 2 ? "two" : i < 5 ? "three" : i < 18 ? "thirteen" : "twenty-two";
    lines.push_back(source + ",m," + std::to_string(i + 1) + ",2048,16,4096,H100,48,192\n");
  }
  for (const std::string& line : lines) text += line;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) backwards += *line;
  const auto layers_of = [](const Measurements& m) {
    std::vector<const Measurement*> rows;
    for (const Measurement& row : m.rows) rows.push_back(&row);
    std::vector<int64_t> layers;
    for (const int row : held_out(rows)) layers.push_back(*m.rows.at(static_cast<size_t>(row) - 1).layers);
    std::sort(layers.begin(), layers.end());
    return layers;
  };
  const std::vector<int64_t> found = layers_of(read_measurements(text, "f"));
  EXPECT_EQ(found, layers_of(read_measurements(backwards, "f")));
  const auto count = [&](int64_t low, int64_t high) {
    return std::count_if(found.begin(), found.end(), [&](int64_t l) { return l >= low && l <= high; });
  };
  EXPECT_EQ(count(1, 2), 0);
  EXPECT_EQ(count(3, 5), 1);    // 0.6 of a row
  EXPECT_EQ(count(6, 18), 3);   // 2.6
  EXPECT_EQ(count(19, 40), 4);  // 4.4
}

TEST(OwnMeasurements, AreThePapersRows) {
  const Measurements m = own_measurements();
  EXPECT_EQ(m.rows.size(), 25u);
  EXPECT_TRUE(m.unknown_columns.empty());
  for (const Measurement& row : m.rows) {
    EXPECT_TRUE(row.unreadable.empty()) << row.row;
    EXPECT_FALSE(row.source.empty()) << row.row;
  }
}

}  // namespace
}  // namespace lockstep::validate
