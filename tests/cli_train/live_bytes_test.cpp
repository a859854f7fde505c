// What a real worker's tensors take, against the planner's memory of its stage. bench/live_bytes.py does the
// same for ten layouts of a larger model.
#include "cli_train/whole_run.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::test {
namespace {

class LiveBytes : public WholeRun {};

void expect_planned_bytes(const observe::RunStore& store, const config::RunFile& run, const Json& stages) {
  const parallel::Mesh mesh(run);
  // The first step also makes what stays.
  const std::vector<observe::WaitMessage> ranks = store.waits(3);
  ASSERT_EQ(ranks.size(), static_cast<size_t>(mesh.size()));
  for (const observe::WaitMessage& one : ranks) {
    const Json& planned = stages.at(static_cast<size_t>(mesh.coordinates(one.rank).pp));
    const auto measured = static_cast<double>(one.tensor_bytes);
    // With and without the planner's assumed margin.
    EXPECT_NEAR(measured / planned.at("total_bytes").get<double>(), 1, 0.1) << "rank " << one.rank;
    EXPECT_NEAR(measured / planned.at("tensors_bytes").get<double>(), 1, 0.03) << "rank " << one.rank;
  }
}

TEST_F(LiveBytes, AreWithinATenthOfThePlan) {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"parallel.zero=3", "parallel.cp=2", "parallel.dp=1", "parallel.recompute=full"},
      {"parallel.zero=2", "parallel.schedule=zb-h1", "parallel.gradient_scatter=micro_batch",
       "parallel.micro_batch=2"},
  };
  for (size_t i = 0; i < layouts.size(); ++i) {
    std::vector<std::string> flags;
    for (const std::string& value : layouts[i]) flags.insert(flags.end(), {"--set", value});
    const auto dir = folder_.path() / ("run" + std::to_string(i));
    std::vector<std::string> train = {"train", tiny().string(),          "--set",     "train.steps=3",
                                      "--set", "train.eval_sequences=1", "--run-dir", dir.string()};
    train.insert(train.end(), flags.begin(), flags.end());
    const Outcome trained = lockstep(train, folder_.path());
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome planned = lockstep({"plan", (dir / "run.toml").string(), "--json"});
    ASSERT_EQ(planned.code, 0) << planned.err;
    expect_planned_bytes(observe::RunStore::open(dir / "run.db"), config::load_run_file(dir / "run.toml", {}),
                         Json::parse(planned.out).at("memory").at("stages"));
  }
}

}  // namespace
}  // namespace lockstep::test
