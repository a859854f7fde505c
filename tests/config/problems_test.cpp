#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

#include "base/error.hpp"
#include "config/run_file.hpp"
#include "support.hpp"

namespace lockstep::config {
namespace {

struct Case {
  std::vector<std::string> overrides;
  std::string expected;  // one whole line of the answer
};

void expect_line(const Examined& examined, const std::string& line) {
  const std::string text = "\n" + to_string(examined.problems) + "\n";
  EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << "wanted: " << line << "\ngot:" << text;
}

// "FILE:LINE" of the line of configs/tiny.toml that begins so: the file is tuned now and then.
std::string at_line(const std::string& begin) {
  std::istringstream text(read_all(configs + "tiny.toml"));
  int number = 1;
  for (std::string line; std::getline(text, line); ++number) {
    if (line.starts_with(begin)) return configs + "tiny.toml:" + std::to_string(number);
  }
  throw std::runtime_error("configs/tiny.toml has no line " + begin);
}

TEST(Problems, OneRuleEach) {
  const std::vector<Case> cases = {
      {{"parallel.tp=3"},
       "--set parallel.tp=3: parallel.tp = 3: must divide model.heads = 8; nearest value that works: 4"},
      {{"parallel.tp=6", "model.heads=12", "model.hidden=120"},
       "--set parallel.tp=6: parallel.tp = 6: must divide model.kv_heads = 4 or be a multiple of it; nearest "
       "value that works: 4"},
      {{"model.ffn=385"},
       at_line("tp = 2") + ": parallel.tp = 2: must divide model.ffn = 385; nearest value that works: 1"},
      {{"model.vocab=128"},
       "--set model.vocab=128: model.vocab = 128: must be at least 256, the tokens of the byte tokenizer; "
       "nearest "
       "value that works: 256"},
      {{"model.heads=6"},
       "--set model.heads=6: model.heads = 6: must divide model.hidden = 128 into heads of even width "
       "(rotary "
       "pairs); nearest value that works: 8"},
      {{"model.kv_heads=3"},
       "--set model.kv_heads=3: model.kv_heads = 3: must divide model.heads = 8; nearest value that works: "
       "4"},
      {{"train.sequence=129"},
       "--set train.sequence=129: train.sequence = 129: must be a multiple of parallel.tp = 2; "
       "nearest value that works: 130"},
      {{"train.sequence=129", "parallel.sequence_parallel=false"},
       "--set train.sequence=129: train.sequence = 129: must be a multiple of parallel.tp = 2; "
       "nearest value that works: 130"},
      {{"parallel.reshard_after_forward=false"},
       "--set parallel.reshard_after_forward=false: parallel.reshard_after_forward = false: needs "
       "parallel.zero = 3, not 1; nearest value that works: true"},
      {{"parallel.gathered_input=keep", "parallel.sequence_parallel=false"},
       "--set parallel.gathered_input=keep: parallel.gathered_input = \"keep\": needs sequence_parallel and "
       "parallel.tp above 1: else nothing is gathered; nearest value that works: \"gather_again\""},
      {{"cluster.gpus=7"},
       "--set cluster.gpus=7: cluster.gpus = 7: must be tp x cp x pp x dp = 2 x 1 x 2 x 2 = 8; nearest value "
       "that "
       "works: 8"},
      {{"cluster.gpus=16"},
       "--set cluster.gpus=16: cluster.gpus = 16: must be tp x cp x pp x dp = 2 x 1 x 2 x 2 = 8 (or "
       "parallel.dp = "
       "4); nearest value that works: 8"},
      {{"cluster.gpus=300"},
       "--set cluster.gpus=300: cluster.gpus = 300: the cluster has 256 GPUs (cluster.max_gpus); nearest "
       "value "
       "that works: 8"},
      {{"parallel.dp=1000"},
       at_line("gpus = 8") +
           ": cluster.gpus = 8: must be tp x cp x pp x dp = 2 x 1 x 2 x 1000 = 4000; nearest value that "
           "works: parallel.dp = 2"},
      {{"parallel.micro_batch=1", "train.global_batch=15"},
       "--set train.global_batch=15: train.global_batch = 15: must be a multiple of parallel.dp x "
       "parallel.micro_batch = 2 x 1 = 2; nearest value that works: 16"},
      {{"model.layers=5"},
       "--set model.layers=5: model.layers = 5: model.layers + first_stage_less_layers + "
       "last_stage_less_layers = "
       "5 + 0 + 0 must be a multiple of pp x virtual_stages = 2 x 1 = 2 (or first_stage_less_layers = 1 and "
       "last_stage_less_layers = 0), or layer_split = \"cost\"; nearest value that works: 6"},
      {{"parallel.first_stage_less_layers=6"},
       "--set parallel.first_stage_less_layers=6: parallel.first_stage_less_layers = 6: a chunk has 5 layers "
       "to "
       "take from; nearest value that works: 4"},
      {{"parallel.virtual_stages=2"},
       "--set parallel.virtual_stages=2: parallel.virtual_stages = 2: more than one chunk a rank needs "
       "parallel.schedule = \"interleaved\"; nearest value that works: 1"},
      {{"software.overlap_gradients=false", "parallel.zero=2"},
       "--set software.overlap_gradients=false: software.overlap_gradients = false: reductions after the "
       "last "
       "backward need every chunk's gradients until then: parallel.zero = 0 or 1, and no more replicas than "
       "dp; "
       "nearest value that works: true"},
      {{"model.architecture=gpt", "model.positions=64"},
       "--set model.positions=64: model.positions = 64: must be at least train.sequence = 128; nearest value "
       "that works: 128"},
      {{"model.architecture=gpt", "parallel.recompute=[\"swiglu\"]"},
       "--set parallel.recompute=[\"swiglu\"]: parallel.recompute = [\"swiglu\"]: a gpt model has no "
       "\"swiglu\" "
       "but "
       "\"gelu\""},
      {{"parallel.layer_split=cost", "parallel.last_stage_less_layers=2"},
       "--set parallel.last_stage_less_layers=2: parallel.last_stage_less_layers = 2: parallel.layer_split = "
       "\"cost\" finds the layers of every chunk itself; nearest value that works: 0"},
      {{"parallel.cp=2", "train.sequence=100"},
       "--set train.sequence=100: train.sequence = 100: must be a multiple of 2 x parallel.cp x parallel.tp "
       "= "
       "2 x 2 x 2 = 8; nearest value that works: 104"},
      {{"parallel.cp=3", "parallel.sequence_parallel=false", "train.sequence=8"},
       "--set train.sequence=8: train.sequence = 8: must be a multiple of 2 x parallel.cp x parallel.tp = 2 "
       "x "
       "3 x 2 = 12; nearest value that works: 12"},
      {{"parallel.replicas=1"},
       "--set parallel.replicas=1: parallel.replicas = 1: must be at least parallel.dp = 2; nearest value "
       "that works: 2"},
      {{"parallel.replicas=3", "parallel.micro_batch=2"},
       at_line("global_batch = ") + ": train.global_batch = 16: must be a multiple of parallel.replicas x "
                                    "parallel.micro_batch = 3 x 2 "
                                    "= 6; nearest value that works: 18"},
      {{"parallel.gradient_scatter=micro_batch"},
       "--set parallel.gradient_scatter=micro_batch: parallel.gradient_scatter = \"micro_batch\": needs "
       "parallel.zero = 2 or 3, not 1; nearest value that works: \"chunk\""},
      {{"parallel.recompute_every=2"},
       "--set parallel.recompute_every=2: parallel.recompute_every = 2: needs parallel.recompute to say what "
       "is computed again; nearest value that works: 1"},
      {{"parallel.gathered_input=keep", "parallel.recompute=[\"swiglu\", \"norm\"]"},
       "--set parallel.gathered_input=keep: parallel.gathered_input = \"keep\": a norm that is computed "
       "again "
       "has no output to keep; nearest value that works: \"gather_again\""},
      {{"train.batch_ramp=[\"8-100\"]"},
       "--set train.batch_ramp=[\"8-100\"]: train.batch_ramp = [\"8-100\"]: \"8-100\": must be "
       "\"SEQUENCES:LAST_STEP\", such as \"8:100\""},
      {{"train.batch_ramp=[\"4:10\", \"9:20\"]", "parallel.micro_batch=2"},
       "--set train.batch_ramp=[\"4:10\", \"9:20\"]: train.batch_ramp = [\"4:10\", \"9:20\"]: \"9:20\": its "
       "sequences must be a multiple of parallel.dp x parallel.micro_batch = 2 x 2 = 4"},
      {{"train.batch_ramp=[\"8:10\", \"4:20\"]", "parallel.micro_batch=1"},
       "--set train.batch_ramp=[\"8:10\", \"4:20\"]: train.batch_ramp = [\"8:10\", \"4:20\"]: \"4:20\": must "
       "have more sequences and a later step than the entry before it"},
      {{"train.batch_ramp=[\"4:10\", \"8:10\"]", "parallel.micro_batch=1"},
       "--set train.batch_ramp=[\"4:10\", \"8:10\"]: train.batch_ramp = [\"4:10\", \"8:10\"]: \"8:10\": must "
       "have more sequences and a later step than the entry before it"},
      {{"train.batch_ramp=[\"16:10\"]", "parallel.micro_batch=1"},
       "--set train.batch_ramp=[\"16:10\"]: train.batch_ramp = [\"16:10\"]: \"16:10\": must have fewer "
       "sequences than train.global_batch = 16"},
      {{"train.decay_steps=5"},
       "--set train.decay_steps=5: train.decay_steps = 5: is of train.schedule = \"wsd\" alone; nearest "
       "value "
       "that works: 0"},
      {{"train.decay_steps=50", "train.schedule=wsd", "train.steps=40"},
       "--set train.decay_steps=50: train.decay_steps = 50: must be at most train.steps = 40; nearest value "
       "that works: 40"},
      {{"train.no_decay=[\"norms\"]"},
       "--set train.no_decay=[\"norms\"]: train.no_decay = [\"norms\"]: must be \"none\" or a list of "
       "\"norm\", \"embedding\", \"output\", each once; nearest value that works: [\"norm\"]"},
      {{"parallel.zero=4"},
       "--set parallel.zero=4: parallel.zero = 4: must be from 0 to 3; nearest value that works: 3"},
      {{"parallel.replicas=1048576", "parallel.micro_batch=1", "train.global_batch=1048576", "parallel.dp=1",
        "parallel.pp=8"},
       "--set train.global_batch=1048576: train.global_batch = 1048576: 1,048,576 micro-batches through pp x "
       "virtual_stages = 8 chunks are more than 4,194,304 passes a step (larger parallel.micro_batch makes "
       "fewer)"},
      {{"cluster.gpus_per_rack=300"},
       "--set cluster.gpus_per_rack=300: cluster.gpus_per_rack = 300: must be a multiple of "
       "cluster.gpus_per_node "
       "= 256; nearest value that works: 256"},
      {{"cluster.max_gpus=4"},
       at_line("gpus = 8") + ": cluster.gpus = 8: the cluster has 4 GPUs (cluster.max_gpus), fewer than tp x "
                             "cp x pp x dp = 8 (a smaller parallel.dp needs fewer); nearest value that "
                             "works: cluster.max_gpus = 8"},
      {{"cluster.gpus=16", "cluster.max_gpus=4"},
       "--set cluster.gpus=16: cluster.gpus = 16: the cluster has 4 GPUs (cluster.max_gpus)"},
      {{"cluster.gpus_per_node=7", "cluster.gpus_per_rack=16", "cluster.gpus_per_pod=3072"},
       "--set cluster.gpus_per_rack=16: cluster.gpus_per_rack = 16: must be a multiple of "
       "cluster.gpus_per_node = 7; nearest value that works: 14"},
      {{"cluster.gpus_per_node=7", "cluster.gpus_per_rack=16", "cluster.gpus_per_pod=3072"},
       "--set cluster.gpus_per_pod=3072: cluster.gpus_per_pod = 3072: must be a multiple of "
       "cluster.gpus_per_rack, 14 then; nearest value that works: 3066"},
      {{"cluster.gpus_per_node=6", "cluster.gpus_per_rack=20", "cluster.gpus_per_pod=96"},
       "--set cluster.gpus_per_rack=20: cluster.gpus_per_rack = 20: must be a multiple of "
       "cluster.gpus_per_node = 6; nearest value that works: 24"},
      {{"cluster.memory_bytes=1e20"},
       "--set cluster.memory_bytes=1e20: cluster.memory_bytes = 1e20: must be from 1.0 to 1e18; nearest "
       "value that works: 1e18"},
      {{"cluster.rack_uplinks=1048576"},
       "--set cluster.rack_uplinks=1048576: cluster.rack_uplinks = 1048576: must be from 0 to 4,096; nearest "
       "value that works: 4096"},
      {{"cluster.gpu=\"a\\u001B[31m\\u009Bb\""},
       "--set cluster.gpu=\"a\\u001B[31m\\u009Bb\": cluster.gpu = \"a\\u001B[31m\u009Bb\": must hold no "
       "control characters; nearest value that works: \"a[31mb\""},
      {{"train.lr=0"},
       "--set train.lr=0: train.lr = 0: must be above 0 and at most 1e30; nearest value that works: 3e-4"},
      {{"train.beta1=1.5"},
       "--set train.beta1=1.5: train.beta1 = 1.5: must be from 0.0 to 0.999999; nearest value that works: "
       "0.999999"},
      {{"train.lr=nan"},
       "--set train.lr=nan: train.lr = nan: must be above 0 and at most 1e30; nearest value that works: "
       "3e-4"},
      {{"train.lr=1e300"},
       "--set train.lr=1e300: train.lr = 1e300: must be above 0 and at most 1e30; nearest value that works: "
       "1e30"},
      {{"cluster.nic_bandwidth=1e-300"},
       "--set cluster.nic_bandwidth=1e-300: cluster.nic_bandwidth = 1e-300: must be from 1.0 to 1e30; "
       "nearest "
       "value that works: 1.0"},
      {{"train.eps=1e-300"},
       "--set train.eps=1e-300: train.eps = 1e-300: must be from 1e-30 to 1e30; nearest value that works: "
       "1e-30"},
      {{"train.global_batch=16777224"},
       "--set train.global_batch=16777224: train.global_batch = 16777224: 2,097,153 micro-batches through pp "
       "x "
       "virtual_stages = 2 chunks are more than 4,194,304 passes a step (larger parallel.micro_batch makes "
       "fewer); nearest value that works: 16777216"},
      {{"model.layers=65536", "model.hidden=65536", "model.ffn=131072"},
       "--set model.layers=65536: model.layers = 65536: the model has more than 1e15 parameters; nearest "
       "value "
       "that works: 23283"},
      {{"parallel.micro_batch=65536", "train.global_batch=131072", "train.sequence=134217728",
        "train.steps=1"},
       "--set train.sequence=134217728: train.sequence = 134217728: the activations of one replica's step "
       "are "
       "more than 5e16 numbers; nearest value that works: 110378970"},
      {{"train.steps=1000000000000", "train.sequence=1024"},
       "--set train.steps=1000000000000: train.steps = 1000000000000: steps x global_batch x sequence are "
       "more "
       "than 9,007,199,254,740,992 tokens; nearest value that works: 549755813888"},
      {{"model.layers=0"},
       "--set model.layers=0: model.layers = 0: must be from 1 to 65,536; nearest value that works: 1"},
      {{"model.layers=4.0"},
       "--set model.layers=4.0: model.layers = 4.0: must be an integer; nearest value that works: 4"},
      {{"train.steps=\"60\""},
       "--set train.steps=\"60\": train.steps = \"60\": must be an integer; nearest value that works: 60"},
      {{"parallel.sequence_parallel=0"},
       "--set parallel.sequence_parallel=0: parallel.sequence_parallel = 0: must be true or false; nearest "
       "value "
       "that works: false"},
      {{"train.dtype=fp16"},
       "--set train.dtype=fp16: train.dtype = \"fp16\": must be one of \"bf16\", \"fp32\", \"fp64\"; nearest "
       "value "
       "that works: \"bf16\""},
      {{"parallel.recompute=[\"norms\", \"swiglu\"]"},
       "--set parallel.recompute=[\"norms\", \"swiglu\"]: parallel.recompute = [\"norms\", \"swiglu\"]: must "
       "be "
       "\"none\", \"full\" or a list of \"norm\", \"swiglu\", \"gelu\", \"attention\", \"second_products\", "
       "each once; nearest "
       "value that "
       "works: "
       "[\"norm\", \"swiglu\"]"},
      {{"name=../x"},
       "--set name=../x: name = \"../x\": must be at most 100 letters, digits, '-', '_' and '.', a letter or "
       "digit "
       "first; nearest value that works: \"x\""},
      {{"model.layer=4"}, "--set model.layer=4: model.layer = 4: unknown key; did you mean model.layers?"},
      {{"modle.layers=4"}, "--set modle.layers=4: [modle]: unknown table; did you mean [model]?"},
  };
  for (const Case& one : cases) expect_line(examine_tiny(one.overrides), one.expected);
}

// Every way of cutting, each with what it needs.
TEST(Problems, TheWholeParallelismIsTaken) {
  const std::vector<std::vector<std::string>> taken = {
      {"parallel.cp=2", "parallel.dp=1"},
      {"parallel.cp=2", "parallel.dp=1", "parallel.sequence_parallel=false"},
      {"parallel.tp=8", "parallel.pp=1", "parallel.dp=1"},  // more ranks than key and value heads
      {"model.vocab=257"},                                  // padded
      {"parallel.schedule=zb-h1"},
      {"parallel.schedule=interleaved", "parallel.pp=1", "parallel.dp=4", "parallel.virtual_stages=2"},
      {"parallel.schedule=interleaved", "parallel.virtual_stages=2", "train.global_batch=24"},
      {"parallel.layer_split=cost", "model.layers=7"},
      {"model.tie_embeddings=true"},
      {"model.tie_embeddings=true", "parallel.schedule=interleaved", "parallel.pp=1", "parallel.dp=4",
       "parallel.virtual_stages=2"},
      {"model.architecture=gpt", "software.preset=megatron-2021", "parallel.recompute=[\"gelu\"]"},
      {"parallel.zero=0"},
      {"parallel.zero=2", "parallel.gradient_scatter=micro_batch"},
      {"parallel.zero=3", "parallel.reshard_after_forward=false"},
      {"parallel.replicas=4"},
      {"parallel.replicas=3", "train.global_batch=12"},
      {"parallel.gathered_input=keep", "parallel.recompute=[\"swiglu\"]", "parallel.recompute_every=2"},
      {"train.optimizer=sgd", "train.momentum=0", "train.no_decay=none"},
      {"train.schedule=linear"},
      {"train.schedule=wsd", "train.decay_steps=600"},
      {"train.schedule=constant", "train.warmup=1000"},
      {"train.batch_ramp=[\"8:10\", \"16:1000\"]", "train.global_batch=24"},
      {"train.nonfinite=skip", "train.eval_interval=50", "data.document_mask=true"}};
  for (const std::vector<std::string>& overrides : taken)
    EXPECT_EQ(to_string(examine_tiny(overrides).problems), "") << overrides.front();
}

TEST(Problems, WhatIsKnownButNotBuiltIsSaidToBe) {
  for (const char* flag :
       {"model.hf=config.json", "data.tokenizer=bpe.json", "data.shards=shards/", "checkpoint.interval=10",
        "checkpoint.interval=auto", "resilience.x=1", "campaign.x=1", "power.x=1", "diloco.x=1", "wan.x=1"}) {
    const std::string text = to_string(examine_tiny({flag}).problems);
    EXPECT_NE(text.find("not built yet"), std::string::npos) << flag << "\n" << text;
    EXPECT_EQ(text.rfind(std::string("--set ") + flag, 0), 0u) << flag << "\n" << text;
  }
}

TEST(Problems, AllOfAFileAtOnceWithTheirLines) {
  const Examined examined = examine(
      "name = \"t\"\n"                      // 1
      "[model]\n"                           // 2
      "preset = \"llama3-8b\"\n"            // 3
      "hiden = 3\n"                         // 4
      "layers = \"many\"\n"                 // 5
      "[cluster]\npreset = \"h100-24k\"\n"  // 6, 7
      "gpus = 6\n"                          // 8
      "[paralel]\ntp = 2\n[parallel]\n"     // 9, 10, 11
      "tp = 3\n");                          // 12
  expect_line(examined, "t.toml:4: model.hiden = 3: unknown key; did you mean model.hidden?");
  expect_line(examined, "t.toml:5: model.layers = \"many\": must be an integer");
  expect_line(examined, "t.toml:9: [paralel]: unknown table; did you mean [parallel]?");
  expect_line(examined,
              "t.toml:12: parallel.tp = 3: must divide model.heads = 32; nearest value that works: 4");
  expect_line(
      examined,
      "t.toml:8: cluster.gpus = 6: must be tp x cp x pp x dp = 3 x 1 x 1 x 1 = 3 (or parallel.dp = 2); "
      "nearest value that works: 3");
  expect_line(examined,
              "t.toml: train.sequence = 128 (default): must be a multiple of parallel.tp = 3; "
              "nearest value that works: 129");
}

TEST(Problems, MissingKeysAreNamed) {
  const Examined examined = examine("[parallel]\ndp = 4\n[train]\nglobal_batch = 8\n");
  expect_line(
      examined,
      "t.toml: name: missing: Name of the run; its folder is called after it; nearest value that works: "
      "\"t\"");
  expect_line(
      examined,
      "t.toml: cluster.gpus: missing: GPUs of the run, or worker processes on a local cluster: tp x cp x pp "
      "x dp; nearest value that works: 4");
  expect_line(
      examined,
      "t.toml: [model]: missing: layers, hidden, ffn, heads, kv_heads, vocab; give them, or preset = one "
      "of: gpt3-175b, llama3-405b, llama3-70b, llama3-8b");
  EXPECT_NE(to_string(examined.problems).find("[cluster]: missing: gpus_per_node"), std::string::npos);
  EXPECT_EQ(examined.problems.size(), 4u);
}

TEST(Problems, TablesAndKeysTakenForEachOther) {
  expect_line(examine("model = 3\n"),
              "t.toml:1: model = 3: this is a table: write [model] and its keys below");
  expect_line(examine("[name]\nx = 1\n"), "t.toml:1: [name]: this is a key, not a table");
  expect_line(examine("[[model]]\nx = 1\n"),
              "t.toml:1: model = [{ x = 1 }]: this is a table: write [model] and its keys below");
  expect_line(examine("[train]\nsteps.x = 1\n"),
              "t.toml:2: train.steps = a table: must be an integer; nearest "
              "value that works: 100");
}

std::string answer(const std::string& file) {
  try {
    load_run_file(file, {});
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Problems, FilesThatCannotBeRead) {
  EXPECT_EQ(answer(configs + "absent.toml"), configs + "absent.toml: no such run file");
  EXPECT_EQ(answer(configs), configs + ": not a file");
}

TEST(Problems, SyntaxErrorsHaveLineAndColumn) {
  const auto syntax = [](const std::string& text) -> std::string {
    try {
      examine(text);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(syntax("name = \"t\"\nx = = 3\n").rfind("t.toml:2:5: not valid TOML: ", 0), 0u);
  EXPECT_EQ(syntax("a = 1\na = 2\n").rfind("t.toml:2:", 0), 0u);
  // toml++ 3.3 asserts on this one.
  EXPECT_EQ(syntax("name = \"t\"\n[ = ]\nx = 1\n"),
            "t.toml:2:1: not valid TOML: this line cannot be understood");
  std::string deep = "x";
  for (int i = 0; i < 100000; ++i) deep += ".x";
  EXPECT_EQ(syntax("\n" + deep + " = 1\n"), "t.toml:2: a key of too many parts");
  EXPECT_NE(syntax("x = " + std::string(100000, '[')), "");
}

}  // namespace
}  // namespace lockstep::config
