// plan, simulate and bench collective, run as programs: their JSON as the interface names it, and what can be
// counted from outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/json.hpp"
#include "cli/program.hpp"
#include "observe/shown_trace.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::test {
namespace {

std::string names(const Json& object) {
  std::string out;
  for (const auto& [name, value] : object.items()) out += name + " ";
  return out;
}

std::string llama405b() { return std::string(LOCKSTEP_SOURCE_DIR) + "/configs/llama3-405b-16k.toml"; }

// 405,853,388,800 from the published shapes, without our own arithmetic's help.
int64_t published_parameters() {
  const int64_t hidden = 16384, layers = 126, ffn = 53248, vocab = 128256, kv = 8 * 128;
  const int64_t layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn + 2 * hidden;
  return 2 * vocab * hidden + layers * layer + hidden;
}

void expect_shared_blocks(const Json& document) {
  EXPECT_EQ(names(document["layout"]),
            "tp cp pp dp virtual_stages micro_batch micro_batches schedule zero recompute world_size ");
  EXPECT_EQ(document["layout"]["world_size"], 16384);
  EXPECT_EQ(document["model"]["parameters"].get<int64_t>(), published_parameters());
  const Json& memory = document["memory"];
  for (const char* name : {"weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes",
                           "other_bytes", "total_bytes", "capacity_bytes", "fits", "stages"}) {
    EXPECT_TRUE(memory.contains(name)) << name;
  }
  EXPECT_EQ(memory["stages"].size(), 16u);
  EXPECT_EQ(memory["total_bytes"].get<int64_t>(),
            memory["weights_bytes"].get<int64_t>() + memory["gradients_bytes"].get<int64_t>() +
                memory["optimizer_bytes"].get<int64_t>() + memory["activations_bytes"].get<int64_t>() +
                memory["other_bytes"].get<int64_t>());
  EXPECT_LT(memory["total_bytes"].get<double>(), 80e9);
  EXPECT_TRUE(memory["fits"].get<bool>());
  const Json& step = document["step"];
  EXPECT_GT(step["seconds"].get<double>(), 5);
  EXPECT_LT(step["seconds"].get<double>(), 8);
  EXPECT_EQ(step["tokens"], 16777216);
  EXPECT_EQ(names(step["split_seconds"]), "data compute tp cp pp dp bubble optimizer barrier ");
  double sum = 0;
  for (const auto& [name, value] : step["split_seconds"].items()) sum += value.get<double>();
  EXPECT_NEAR(sum, step["seconds"].get<double>(), 1e-6);
  // The definition of mfu, from the published shapes: 6 x (all but input embedding and norms) + attention.
  const double multiplying =
      static_cast<double>(published_parameters() - 128256LL * 16384 - (2 * 126 + 1) * 16384LL);
  const double flops = 6 * multiplying + 12.0 * 126 * 16384 * 8192;
  const double achieved = flops * step["tokens_per_second"].get<double>() / 16384;
  EXPECT_NEAR(step["tflops_per_gpu"].get<double>(), achieved / 1e12, 1e-6);
  EXPECT_LE(step["mfu_causal"].get<double>(), 1);
  EXPECT_LT(step["mfu_causal"].get<double>(), step["mfu"].get<double>());
}

TEST(Plan, The405BFileAsJson) {
  const Outcome outcome = lockstep({"plan", llama405b(), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  EXPECT_EQ(names(document), "layout model memory memory_curve traffic step power training ");
  expect_shared_blocks(document);
  EXPECT_EQ(names(document["training"]), "tokens days gpu_hours usd energy_megawatt_hours ");
  EXPECT_EQ(document["training"]["tokens"].get<double>(), 15.6e12);
  EXPECT_EQ(names(document["traffic"]), "tp_bytes cp_bytes pp_bytes dp_bytes ");
  // Fullest when the last chunk's forwards meet the first backwards; empty at the end.
  EXPECT_EQ(document["memory_curve"].size(), 2u * 8 * 16);
  EXPECT_EQ(names(document["memory_curve"][0]), "pass chunk micro_batch activations_bytes tensors_bytes ");
  EXPECT_EQ(document["memory_curve"].back()["activations_bytes"], 0);
  EXPECT_EQ(document["traffic"]["cp_bytes"], 0);
}

TEST(Plan, PowerAndEnergyFollowWhatIfs) {
  const std::vector<std::string> words = {"plan", llama405b(), "--json"};
  std::vector<std::string> doubled = words;
  doubled.insert(doubled.end(), {"--set", "cluster.pue=2.2"});  // the preset has 1.1
  const Json usual = Json::parse(lockstep(words).out), costly = Json::parse(lockstep(doubled).out);
  const double megawatts = usual["power"]["average_megawatts"].get<double>();
  EXPECT_NEAR(costly["power"]["average_megawatts"].get<double>(), 2 * megawatts, 1e-9);
  EXPECT_NEAR(costly["power"]["peak_megawatts"].get<double>(),
              2.2 * (16384 * (700.0 + 60) + 2048 * 3000.0) / 1e6, 1e-9);
  EXPECT_NEAR(usual["training"]["energy_megawatt_hours"].get<double>(),
              megawatts * 24 * usual["training"]["days"].get<double>(), 1e-6);
  const Json local = Json::parse(lockstep({"plan", tiny().string(), "--json"}).out);
  EXPECT_TRUE(local["power"].is_null()) << "nobody has said what a worker process draws";
  EXPECT_TRUE(local["training"]["energy_megawatt_hours"].is_null());
}

// Every cut that the run file can name: planned and simulated, with a trace.
TEST(PlanAndSimulate, TakeEveryCut) {
  const std::vector<std::vector<std::string>> cuts = {
      {"parallel.tp=1", "parallel.cp=2", "parallel.zero=3", "parallel.schedule=zb-h1",
       "parallel.gradient_scatter=micro_batch", "data.document_mask=true"},
      {"parallel.pp=1", "parallel.dp=4", "parallel.virtual_stages=2", "parallel.schedule=interleaved",
       "parallel.zero=3", "parallel.reshard_after_forward=false"},
      {"parallel.dp=1", "parallel.cp=2", "parallel.replicas=4", "parallel.zero=0",
       "model.tie_embeddings=true", "model.vocab=257"},
      {"parallel.tp=4", "parallel.dp=1", "model.kv_heads=2", "parallel.gathered_input=keep",
       "parallel.recompute=[\"swiglu\"]", "parallel.recompute_every=2", "train.optimizer=sgd"}};
  TemporaryFolder folder;
  for (const auto& cut : cuts) {
    std::vector<std::string> words = {tiny().string(), "--json"};
    for (const std::string& set : cut) words.insert(words.end(), {"--set", set});
    std::vector<std::string> plan = {"plan"}, simulate = {"simulate", "--trace", "t.json"};
    plan.insert(plan.end(), words.begin(), words.end());
    simulate.insert(simulate.end(), words.begin(), words.end());
    const Outcome planned = lockstep(plan), simulated = lockstep(simulate, folder.path());
    ASSERT_EQ(planned.code, 0) << planned.err;
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    const Json a = Json::parse(planned.out), b = Json::parse(simulated.out);
    EXPECT_EQ(a["memory"], b["memory"]);
    EXPECT_EQ(a["layout"], b["layout"]);
    EXPECT_NEAR(a["step"]["seconds"].get<double>() / b["step"]["seconds"].get<double>(), 1, 0.15) << cut[0];
    std::ifstream in(folder.path() / "t.json");
    EXPECT_FALSE(Json::parse(in)["traceEvents"].empty());
  }
}

TEST(Simulate, The405BFileAsJsonInTimeAndMemory) {
  const Outcome outcome = lockstep({"simulate", llama405b(), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  expect_shared_blocks(document);
  EXPECT_EQ(document["ranks"], 16384);
  EXPECT_GT(document["ops"].get<int64_t>(), 10'000'000);
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_LT(outcome.peak_bytes, int64_t{4} << 30);
  EXPECT_LE(document["wall_seconds"].get<double>(), outcome.seconds)
      << "its own account is checked from outside";
  std::string phases;
  for (const Json& phase : document["phases"]) phases += phase["name"].get<std::string>() + " ";
  EXPECT_EQ(phases, "data forward backward optimizer barrier ");
}

TEST(Simulate, TheSeedDecidesAndNothingElse) {
  const auto seconds = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"simulate", tiny().string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out)["step"]["seconds"].get<double>();
  };
  EXPECT_EQ(seconds({"--seed", "7"}), seconds({"--seed", "7"}));
  EXPECT_NE(seconds({"--seed", "7"}), seconds({"--seed", "8"}));
  EXPECT_EQ(seconds({"--seed", "7"}), seconds({"--set", "simulate.seed=7"}));
  EXPECT_EQ(seconds({"--seed", "7", "--set", "simulate.seed=8"}), seconds({"--seed", "7"}));
  EXPECT_EQ(seconds({"--seed", "7", "--set", "simulate.jitter=false"}),
            seconds({"--seed", "8", "--set", "simulate.jitter=false"}));
}

TEST(Simulate, ListsHowEachTransferGoes) {
  const std::vector<std::string> words = {"simulate", llama405b(), "--set",
                                          "cluster.collective_algorithm=halving_doubling"};
  const Outcome text = lockstep(words);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("tp  all_gather"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\"halving_doubling\" does not exist"), std::string::npos) << text.out;
  std::vector<std::string> as_json = words;
  as_json.push_back("--json");
  const Json transfers = Json::parse(lockstep(as_json).out)["transfers"];
  ASSERT_FALSE(transfers.empty());
  bool missing = false, there = false;
  for (const Json& t : transfers) {
    for (const char* name : {"kind", "axis", "bytes", "ranks", "times", "algorithm", "protocol",
                             "as_configured", "over_nvlink", "over_nic", "seconds", "bus_bytes_per_second"}) {
      EXPECT_TRUE(t.contains(name)) << name;
    }
    EXPECT_GT(t["seconds"].get<double>(), 0);
    missing = missing || !t["as_configured"].get<bool>();
    there = there || t["algorithm"] == "halving_doubling";
  }
  EXPECT_TRUE(missing && there);
}

TEST(Simulate, SeveralStepsAreMeansOfEach) {
  const Outcome outcome = lockstep({"simulate", tiny().string(), "--steps", "5", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  ASSERT_EQ(document["steps_seconds"].size(), 5u);
  double sum = 0;
  for (const Json& seconds : document["steps_seconds"]) sum += seconds.get<double>();
  EXPECT_NEAR(document["step"]["seconds"].get<double>(), sum / 5, 1e-12);
  EXPECT_NE(document["steps_seconds"][0], document["steps_seconds"][1]) << "each step draws its own jitter";
  double split = 0;
  for (const auto& [name, value] : document["step"]["split_seconds"].items()) split += value.get<double>();
  EXPECT_NEAR(split, sum / 5, 1e-9);
  const Json one = Json::parse(lockstep({"simulate", tiny().string(), "--json"}).out);
  EXPECT_EQ(one["step"]["seconds"], document["steps_seconds"][0]);
  EXPECT_EQ(document["ops"].get<int64_t>(), 5 * one["ops"].get<int64_t>());
}

TEST(Simulate, WritesATraceOfTheRanksThatWereAskedFor) {
  TemporaryFolder folder;
  const Outcome outcome = lockstep(
      {"simulate", tiny().string(), "--trace", "t.json", "--ranks", "5,2", "--steps", "2"}, folder.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream in(folder.path() / "t.json");
  const Json trace = Json::parse(in);
  std::set<int> ranks, steps;
  double last_end = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") {
      const std::string name = event["args"]["name"];  // "rank 2  tp0 pp1 dp0"
      ranks.insert(std::stoi(name.substr(name.find(' '))));
    }
    if (event["ph"] != "X") continue;
    steps.insert(event["args"]["step"].get<int>());
    last_end = std::max(last_end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(ranks, (std::set<int>{2, 5}));
  EXPECT_EQ(steps.size(), 2u);
  const Json document = Json::parse(lockstep({"simulate", tiny().string(), "--steps", "2", "--json"}).out);
  const double both = document["steps_seconds"][0].get<double>() + document["steps_seconds"][1].get<double>();
  EXPECT_LE(last_end, both * 1e6 + 1);
  EXPECT_GT(last_end, document["steps_seconds"][0].get<double>() * 1e6)
      << "the second step follows the first";
}

TEST(Simulate, WritesPerfettosFormatToo) {
  TemporaryFolder folder;
  for (const char* name : {"t.json", "t.pftrace"}) {
    const Outcome outcome =
        lockstep({"simulate", tiny().string(), "--trace", name, "--ranks", "0-2,5"}, folder.path());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(std::string(name) + " holds 4 ranks"), std::string::npos) << outcome.out;
  }
  const testing::ShownTrace trace = testing::read_perfetto(testing::read_text(folder.path() / "t.pftrace"));
  EXPECT_EQ(trace, testing::read_chrome(testing::read_text(folder.path() / "t.json")));
  std::set<int> ranks;
  for (const auto& [pid, process] : trace.processes) ranks.insert(process.second);
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 5}));
}

// A replica of the 405B run: 128 ranks, two thirds of a million spans. The bounds are several times what a
// busy core needs.
TEST(Simulate, TracesAReplicaOfThe405BFile) {
  TemporaryFolder folder;
  for (const char* name : {"t.json", "t.pftrace"}) {
    const Outcome outcome =
        lockstep({"simulate", llama405b(), "--json", "--trace", name, "--ranks", "0-127"}, folder.path());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(outcome.seconds, 20) << name;
    EXPECT_LT(outcome.peak_bytes, int64_t{1} << 30) << name;
  }
  EXPECT_GT(std::filesystem::file_size(folder.path() / "t.json"), 50'000'000u);
  const std::string trace = testing::read_text(folder.path() / "t.pftrace");
  EXPECT_LT(trace.size(), std::filesystem::file_size(folder.path() / "t.json"));
  EXPECT_GT(testing::perfetto_packets(trace), 1'000'000u);
}

TEST(Simulate, RefusesWhatItCannotTrace) {
  TemporaryFolder folder;
  for (const auto& [words, answer] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--trace", "t.json", "--ranks", "8"}, "rank 8: the layout has ranks 0 to 7"},
           {{"--trace", "t.json", "--ranks", "1,1"}, "rank 1 is named twice"},
           {{"--ranks", "1"}, "give --trace"},
           {{"--steps", "0"}, "0 is less than 1"},
           {{"--trace", "t.json", "--ranks", "5-8"}, "rank 8: the layout has ranks 0 to 7"},
           {{"--trace", "t.json", "--ranks", "0-3,2"}, "rank 2 is named twice"},
           {{"--trace", "t.json", "--ranks", "3-2"}, "\"3-2\" ends before it begins"},
           {{"--trace", "t.json", "--ranks", "0-x"}, "\"x\" is not a whole number"},
           {{"--trace", "t.json", "--ranks=-1"}, "-1 is less than 0"}}) {
    std::vector<std::string> all = {"simulate", tiny().string()};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = lockstep(all, folder.path());
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find(answer), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(BenchCollective, MeasuresAndCountsWhatIsWrong) {
  const auto shared_before = named_shared_memory();
  const Outcome outcome =
      lockstep({"bench", "collective", "--ranks", "4", "--bytes", "1024,65536", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  ASSERT_EQ(document.size(), 2u);
  for (const Json& row : document) {
    EXPECT_EQ(names(row), "collective algorithm ranks bytes microseconds algbw_gbps busbw_gbps wrong ");
    EXPECT_EQ(row["wrong"], 0);
    const double algbw = row["bytes"].get<double>() / row["microseconds"].get<double>() / 1e3;
    EXPECT_NEAR(row["algbw_gbps"].get<double>(), algbw, 1e-6 * algbw);
    EXPECT_NEAR(row["busbw_gbps"].get<double>(), algbw * 2 * 3 / 4, 1e-6 * algbw);
  }
  EXPECT_EQ(named_shared_memory(), shared_before);
  const std::string table = lockstep({"bench", "collective", "--ranks", "2", "--bytes", "1024"}).out;
  for (const char* column :
       {"size", "count", "type", "redop", "time (us)", "algbw", "busbw", "wrong", "average bus bandwidth"}) {
    EXPECT_NE(table.find(column), std::string::npos) << column;
  }
}

}  // namespace
}  // namespace lockstep::test
