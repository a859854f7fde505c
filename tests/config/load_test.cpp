#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "config/run_file.hpp"
#include "support.hpp"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

TEST(Load, TinyHasTheValuesOfTheInterface) {
  const RunFile run = load_run_file(configs + "tiny.toml", {});
  EXPECT_EQ(run.name, "tiny");
  const ModelConfig& m = run.model;
  EXPECT_EQ(std::vector<int64_t>({m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.vocab}),
            std::vector<int64_t>({4, 128, 384, 8, 4, 256}));
  EXPECT_EQ(run.cluster.preset, "local");
  EXPECT_EQ(run.cluster.gpus, 8);
  const ParallelConfig& p = run.parallel;
  EXPECT_EQ(std::vector<int64_t>({p.tp, p.cp, p.pp, p.dp}), std::vector<int64_t>({2, 1, 2, 2}));
  EXPECT_EQ(p.schedule, ScheduleKind::one_f_one_b);
  EXPECT_TRUE(p.sequence_parallel);
  EXPECT_TRUE(p.recompute.empty());
  EXPECT_EQ(run.train.sequence, 128);
  EXPECT_EQ(run.train.global_batch, 16);
  EXPECT_EQ(run.train.steps, 600);
  EXPECT_EQ(run.train.dtype, Dtype::bf16);
  EXPECT_EQ(run.train.lr, 3e-3);
  EXPECT_EQ(run.train.warmup, 20);
  EXPECT_EQ(run.train.seed, 1);
  EXPECT_EQ(run.data.text, LOCKSTEP_SOURCE_DIR "/data/sotu");
  EXPECT_NO_THROW(check_for_training(run));
}

// "The Llama 3 Herd of Models", arXiv:2407.21783, tables 3 and 4 and section 3.3.1.
TEST(Load, Llama405BHasThePublishedValues) {
  const RunFile run = load_run_file(configs + "llama3-405b-16k.toml", {});
  const ModelConfig& m = run.model;
  EXPECT_EQ(std::vector<int64_t>({m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.vocab}),
            std::vector<int64_t>({126, 16384, 53248, 128, 8, 128256}));
  EXPECT_EQ(m.rope_theta, 500000);
  EXPECT_EQ(run.cluster.gpus, 16384);
  EXPECT_EQ(run.parallel.world_size(), 16384);
  EXPECT_EQ(run.micro_batches(), 16);
  EXPECT_EQ(run.train.global_batch * run.train.sequence, 16777216);
  EXPECT_EQ(run.train.tokens, 15600000000000);
  EXPECT_EQ(run.parallel.recompute, (std::vector<std::string>{"norm", "swiglu"}));
  EXPECT_EQ(run.cluster.gpus_per_pod, 192 * 16);
  EXPECT_EQ(run.cluster.max_gpus, 8 * 3072);
  EXPECT_EQ(run.cluster.nic_bandwidth, 400e9 / 8);
  EXPECT_EQ(run.cluster.pod_oversubscription, 7);
}

TEST(Load, APresetInAFlagWinsOverTheFilesKeysButNotOverOtherFlags) {
  const RunFile run = load_run_file(configs + "tiny.toml", {"model.preset=llama3-8b", "model.layers=16"});
  EXPECT_EQ(run.model.hidden, 4096);
  EXPECT_EQ(run.model.vocab, 128256);
  EXPECT_EQ(run.model.layers, 16);
}

TEST(Load, TheRunFileOverridesAPresetAndAFlagTheRunFile) {
  const std::string text =
      "name = \"t\"\n[model]\npreset = \"llama3-8b\"\nlayers = 16\n[cluster]\npreset = \"h100-24k\"\n"
      "gpus = 1\nmemory_bytes = 96e9\n";
  const Examined plain = examine(text);
  EXPECT_EQ(to_string(plain.problems), "");
  EXPECT_EQ(plain.run.model.layers, 16);
  EXPECT_EQ(plain.run.model.hidden, 4096);
  EXPECT_EQ(plain.run.cluster.memory_bytes, 96e9);
  const Examined flagged = examine_run_text(
      text, "t.toml",
      {"model.layers=8", "model.layers = 4", "cluster.preset=local", "name=\"a=b\"", "name=run-2"});
  EXPECT_EQ(to_string(flagged.problems), "");
  EXPECT_EQ(flagged.run.model.layers, 4);  // the last flag of a key counts
  EXPECT_EQ(flagged.run.cluster.preset, "local");
  EXPECT_EQ(flagged.run.cluster.gpus_per_node, 256);
  EXPECT_EQ(flagged.run.cluster.memory_bytes, 2e9);  // a preset in a flag counts as all of its keys there
  EXPECT_EQ(flagged.run.name, "run-2");
}

// A file of its own in the test's folder.
std::string cluster_file(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Load, AClusterFileStandsBetweenTheRunFileAndAPreset) {
  const std::string file = cluster_file("lockstep-cluster.toml",
                                        "[cluster]\nnic_bandwidth = 1e9\nmemory_bytes = 5e9\n"
                                        "all_reduce_times = [{ ranks = 8, bytes = 1024, seconds = 1e-4 }]\n");
  const std::string text =
      "name = \"x\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = \"h100-24k\"\ngpus = 1\n";
  const Examined in_file = examine(text + "memory_bytes = 7e9\nfile = \"" + file + "\"\n");
  EXPECT_EQ(to_string(in_file.problems), "");
  EXPECT_EQ(in_file.run.cluster.nic_bandwidth, 1e9);
  EXPECT_EQ(in_file.run.cluster.memory_bytes, 7e9) << "the run file's own key";
  EXPECT_EQ(in_file.run.cluster.gpus_per_pod, 3072) << "the preset's";
  const std::vector<TimedTransfer> timed = {{8, 1024, 1e-4}};
  EXPECT_EQ(in_file.run.cluster.all_reduce_times, timed);
  EXPECT_EQ(in_file.run.cluster.file, "") << "a resolved run file stands alone";

  const Examined flag = examine_run_text(text + "memory_bytes = 7e9\n", "t.toml", {"cluster.file=" + file});
  EXPECT_EQ(to_string(flag.problems), "");
  EXPECT_EQ(flag.run.cluster.memory_bytes, 5e9) << "a file in a flag wins over the run file";
}

TEST(Load, AClusterFileHoldsFiguresOfAClusterOnly) {
  const std::string file =
      cluster_file("lockstep-odd.toml", "name = \"y\"\n[cluster]\npreset = \"local\"\nspeed = 3\n");
  const auto problems = examine_tiny({"cluster.file=" + file}).problems;
  ASSERT_EQ(problems.size(), 3u) << to_string(problems);
  for (const Problem& problem : problems)
    EXPECT_NE(problem.where.find("lockstep-odd.toml:"), std::string::npos);
  const auto absent = examine_tiny({"cluster.file=/no/such/file.toml"}).problems;
  ASSERT_EQ(absent.size(), 1u);
  EXPECT_NE(to_string(absent).find("no such cluster file"), std::string::npos) << to_string(absent);
}

TEST(Load, ADeviceIsAPresetBelowTheCluster) {
  const std::string text =
      "name = \"x\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = \"h100-24k\"\ngpus = 1\n";
  EXPECT_EQ(examine(text).run.cluster.gpu, "H100-80G-SXM");
  EXPECT_EQ(examine(text).run.cluster.device, "h100-80g");
  EXPECT_EQ(examine(text + "peak_flops_bf16 = 5e14\n").run.cluster.peak_flops_bf16, 5e14);
  const auto wrong = examine(text + "device = \"h100-81g\"\n").problems;
  ASSERT_FALSE(wrong.empty());
  EXPECT_EQ(wrong.front().fix, "\"h100-80g\"") << to_string(wrong);
}

TEST(Load, ListsOfTablesAreTakenAscendingEachOnce) {
  const RunFile run =
      examine_tiny({"simulate.slow=[{ rank = 3, factor = 1.3 }, { factor = 2, rank = 7 }]"}).run;
  const std::vector<SlowRank> slow = {{3, 1.3}, {7, 2}};
  EXPECT_EQ(run.simulate.slow, slow);
  const auto fix = [](const std::string& list) {
    const auto problems = examine_tiny({"simulate.slow=" + list}).problems;
    return problems.size() == 1 ? problems.front().fix : to_string(problems);
  };
  EXPECT_EQ(fix("[{ rank = 7, factor = 2 }, { rank = 3, factor = 1.5 }]"),
            "[{ rank = 3, factor = 1.5 }, { rank = 7, factor = 2 }]");
  EXPECT_EQ(fix("[{ rank = 7, factor = 2 }, { rank = 7, factor = 3 }]"), "[{ rank = 7, factor = 2 }]");
  EXPECT_EQ(fix("[{ rank = 7 }]"), "[]");
  EXPECT_EQ(fix("[{ rank = 7, factor = 0 }]"), "[]");
  EXPECT_EQ(fix("[{ rank = 1.5, factor = 2 }]"), "[]");
  EXPECT_EQ(fix("[{ rank = 1, factor = 2, node = 3 }]"), "[]");
  EXPECT_EQ(fix("[{ rank = 1, factor = \"2\" }]"), "[]");
  EXPECT_EQ(fix("7"), "[]");
}

TEST(Load, OverridesAreTomlOrElseStrings) {
  EXPECT_EQ(examine_tiny({"parallel.schedule=gpipe"}).run.parallel.schedule, ScheduleKind::gpipe);
  EXPECT_EQ(examine_tiny({"parallel.schedule=\"1f1b\""}).run.parallel.schedule, ScheduleKind::one_f_one_b);
  EXPECT_EQ(examine_tiny({"train.lr=1"}).run.train.lr, 1.0);  // an integer where a float is expected
  EXPECT_EQ(examine_tiny({"parallel.recompute=full"}).run.parallel.recompute,
            std::vector<std::string>{"full"});
  EXPECT_EQ(examine_tiny({"parallel.recompute=[\"attention\"]"}).run.parallel.recompute,
            std::vector<std::string>{"attention"});
  EXPECT_EQ(examine_tiny({"data.held_out=['a', 'b c']"}).run.data.held_out,
            (std::vector<std::string>{"a", "b c"}));
  // A line break in the value does not smuggle in a second key: the whole is one string.
  EXPECT_EQ(examine_tiny({"data.text=1\nx = 2"}).run.data.text, configs + "1\nx = 2");
  EXPECT_THROW(examine_tiny({"train.steps"}), UsageError);
  EXPECT_THROW(examine_tiny({"=3"}), UsageError);
  EXPECT_THROW(examine_tiny({"data.text=\xff\xfe"}), UsageError);
}

class TextPlaces : public testing::Test {
 protected:
  TextPlaces() : root_(fs::path(testing::TempDir()) / ("lockstep_places_" + std::to_string(getpid()))) {
    fs::create_directories(root_ / "a/b/c/d");
  }
  ~TextPlaces() override { fs::remove_all(root_); }

  RunFile load(const std::string& text) const {
    return examine_run_text(read_all(configs + "tiny.toml"), root_ / "a/b/c/d/run.toml",
                            {"data.text=" + text})
        .run;
  }

  fs::path root_;
};

TEST_F(TextPlaces, RunFilesFolderThenThreeAboveThenTheCurrentOne) {
  for (const char* folder : {"", "a", "a/b", "a/b/c", "a/b/c/d"}) {
    const fs::path text = root_ / folder / "corpus";
    fs::create_directory(text);
    if (std::string(folder).empty()) {
      EXPECT_EQ(load("corpus").data.text, (root_ / "a/b/c/d/corpus").string()) << "four above is too far";
    } else {
      EXPECT_EQ(load("corpus").data.text, text.string());
    }
  }
  EXPECT_EQ(load(root_.string()).data.text, root_.string());
  const fs::path here = fs::current_path();
  fs::create_directory(root_ / "elsewhere");
  fs::current_path(root_);
  EXPECT_EQ(load("elsewhere").data.text, (fs::current_path() / "elsewhere").string());
  fs::current_path(here);
}

TEST_F(TextPlaces, TrainingNeedsATextAndSaysWhereItLooked) {
  const auto message = [](const RunFile& run) -> std::string {
    try {
      check_for_training(run);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(load("absent").origin.text_places.size(), 5u);
  for (const std::string& place : load("absent").origin.text_places) {
    EXPECT_NE(message(load("absent")).find(place), std::string::npos) << place;
  }
  fs::create_directory(root_ / "a/empty");
  EXPECT_NE(message(load("empty")).find("holds no .txt"), std::string::npos);
  std::ofstream(root_ / "a/empty/one.txt") << "text";
  EXPECT_EQ(message(load("empty")), "");
  EXPECT_EQ(message(load("empty/one.txt")), "");
  EXPECT_NE(message(load("\"\"")).find("needs a text"), std::string::npos);
}

TEST(Training, RefusesWhatOnlyPlanAndSimulateKnow) {
  try {
    check_for_training(load_run_file(configs + "llama3-405b-16k.toml", {}));
    FAIL();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cluster.preset = \"h100-24k\""), std::string::npos) << text;
    EXPECT_NE(text.find("data.text"), std::string::npos) << text;
  }
}

TEST(Load, LogicalReplicasAreFixedInTheResolvedFile) {
  EXPECT_EQ(examine_tiny({}).run.parallel.replicas, 2);
  const std::string resolved = to_toml(examine_tiny({"parallel.replicas=4"}).run);
  const Examined smaller = examine_run_text(resolved, "resolved.toml", {"parallel.dp=1", "cluster.gpus=4"});
  EXPECT_EQ(to_string(smaller.problems), "");
  EXPECT_EQ(smaller.run.parallel.replicas, 4);
  EXPECT_EQ(smaller.run.parallel.rounds(), 4);
  const Examined three = examine_run_text(resolved, "resolved.toml", {"parallel.dp=3", "cluster.gpus=12"});
  EXPECT_EQ(to_string(three.problems), "");
  EXPECT_EQ(three.run.parallel.rounds(), 2);
  EXPECT_EQ(three.run.micro_batches(), 2 * three.run.replica_micro_batches());
}

TEST(Training, RefusesWhatItDoesNotDo) {
  check_for_training(examine_tiny({}).run);
  EXPECT_THROW(check_for_training(examine_tiny({"data.prefetch=false"}).run), UsageError);
}

TEST(Training, RefusesReplicasInsideContext) {
  check_for_training(examine_tiny({"parallel.rank_order=pp-cp-dp-tp"}).run);
  EXPECT_THROW(check_for_training(examine_tiny({"parallel.rank_order=dp-tp-cp-pp"}).run), UsageError);
}

TEST(Training, RefusesSoftwareThatItIsNot) {
  for (const char* flag : {"software.attention=scores", "software.dropout=true",
                           "software.cross_entropy=unfused", "software.gradient_dtype=compute",
                           "software.overlap_gradients=false", "software.overlap_parameters=true",
                           "software.recompute_early_stop=false", "software.tensor_parallel_copies=true",
                           "software.tensor_parallel_overlap=0.5", "software.elementwise_traffic=2.5",
                           "software.reduce_in_place=true", "software.fused_weight_gradients=true",
                           "software.loss_memory=4", "parallel.recompute=[\"second_products\"]"}) {
    const RunFile run = examine_tiny({flag}).run;
    try {
      check_for_training(run);
      ADD_FAILURE() << flag;
    } catch (const UsageError& error) {
      const std::string key = std::string(flag).substr(0, std::string(flag).find('='));
      EXPECT_EQ(std::string(error.what()).rfind(std::string("--set ") + flag + ": " + key, 0), 0u)
          << error.what();
    }
  }
  EXPECT_THROW(check_for_training(examine_tiny({"model.architecture=gpt"}).run), UsageError);
  EXPECT_THROW(
      check_for_training(examine_tiny({"model.tie_embeddings=true", "parallel.schedule=interleaved",
                                       "parallel.pp=1", "parallel.dp=4", "parallel.virtual_stages=2"})
                             .run),
      UsageError);
  // What only predicts is no work of the trainer's.
  EXPECT_NO_THROW(check_for_training(examine_tiny({"software.host_seconds_per_launch=1e-6"}).run));
  EXPECT_NO_THROW(check_for_training(examine_tiny({"software.preset=lockstep"}).run));
}

// A share of what is held: less than all of it, and nothing of the trainer's.
TEST(Software, TheMemoryMarginIsAShareBelowOne) {
  EXPECT_EQ(examine_tiny({}).run.software.memory_margin, 0.05);
  for (const char* good : {"software.memory_margin=0", "software.memory_margin=0.5"}) {
    EXPECT_TRUE(examine_tiny({good}).problems.empty()) << good;
    EXPECT_NO_THROW(check_for_training(examine_tiny({good}).run));
  }
  for (const char* bad :
       {"software.memory_margin=1", "software.memory_margin=-0.01", "software.memory_margin=nan"}) {
    const Examined examined = examine_tiny({bad});
    ASSERT_EQ(examined.problems.size(), 1u) << bad;
    EXPECT_EQ(examined.problems[0].key, "software.memory_margin");
  }
}

TEST(Training, RefusesMoreWorkersThanOneMachineTakes) {
  const auto run = [](int workers) {
    const std::string n = std::to_string(workers);
    return load_run_file(configs + "tiny.toml",
                         {"cluster.max_gpus=0", "cluster.gpus=" + n, "parallel.dp=" + n, "parallel.tp=1",
                          "parallel.pp=1", "parallel.micro_batch=1", "train.global_batch=" + n});
  };
  EXPECT_NO_THROW(check_for_training(run(256)));
  try {
    check_for_training(run(257));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--set cluster.gpus=257: cluster.gpus = 257: training starts at most 256 workers");
  }
}

}  // namespace
}  // namespace lockstep::config
