// lockstep doctor: what this build and machine can do.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/machine.hpp"
#include "cli/output.hpp"
#include "resilience/launcher.hpp"

namespace lockstep::cli {

namespace {

struct Finding {
  std::string what, found;
  bool good = true;
  std::string fix = {};  // when it is not good
};

Finding trainer() {
  try {
    return {"trainer", resilience::find_worker().string()};
  } catch (const UsageError&) {
    return {"trainer", "no lockstep-worker beside this program: `train` cannot run", false,
            "make setup && make build (needs libtorch-dev, -DLOCKSTEP_TRAIN=ON)"};
  }
}

Finding processor() {
  std::string found = processor_name().empty() ? "unknown processor" : processor_name();
  for (const char* feature : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (processor_has(feature)) found += std::string(", ") + feature;
  }
  return {"processor", found};
}

Finding cores() {
  const int count = usable_cores();
  return {"cores", fmt::format("{} that this process may use", count)};
}

Finding memory() {
  const int64_t bytes = available_memory();
  if (bytes < 0) return {"memory", "not known", false, "mount /proc"};
  return {"memory", fmt::format("{} available", format_bytes(static_cast<double>(bytes)))};
}

Finding shared_memory() {
  const int fd = memfd_create("lockstep-doctor", MFD_CLOEXEC);
  if (fd < 0)
    return {"shared memory", "memfd_create is refused: workers cannot share memory", false,
            "Linux 3.17 or newer"};
  close(fd);
  return {"shared memory", "memfd: nothing with a name, nothing to leave behind"};
}

// Debian links LibTorch to the BLAS that this alternative points to.
Finding blas() {
  std::error_code error;
  const auto target = std::filesystem::canonical("/usr/lib/x86_64-linux-gnu/libblas.so.3", error);
  if (!error && target.string().find("openblas") != std::string::npos) return {"BLAS", target.string()};
  return {"BLAS", error ? "Debian's libblas.so.3 is not there" : target.string() + " is not OpenBLAS", false,
          "apt-get install libopenblas0-pthread: fp32 and fp64 products are 15-50 times slower without"};
}

Json to_json(const std::vector<Finding>& findings) {
  Json out;
  out["version"] = LOCKSTEP_VERSION;
  for (const Finding& finding : findings) {
    Json one = {{"what", finding.what}, {"found", finding.found}, {"good", finding.good}};
    if (!finding.good) one["fix"] = finding.fix;
    out["findings"].push_back(std::move(one));
  }
  for (const Feature& feature : features()) {
    out["features"].push_back({{"name", feature.name}, {"does", feature.does}, {"built", feature.built}});
  }
  return out;
}

void print_text(const std::vector<Finding>& findings) {
  std::string text = "lockstep " LOCKSTEP_VERSION " on this machine:\n\n";
  for (const Finding& finding : findings) {
    text +=
        fmt::format("  {} {:<14}  {}\n", finding.good ? "ok     " : "MISSING", finding.what, finding.found);
    if (!finding.good) text += fmt::format("  {:<24}to fix: {}\n", "", finding.fix);
  }
  text += "\nnot built in this version, whatever is installed: GPUs (NCCL), many machines (MPI), and\n ";
  size_t column = 1;
  for (const Feature& feature : features()) {
    if (feature.built) continue;
    if (column + feature.name.size() + 2 > 100) {
      text += "\n ";
      column = 1;
    }
    text += fmt::format(" {},", feature.name);
    column += feature.name.size() + 2;
  }
  text.back() = '\n';
  print(text);
}

}  // namespace

int doctor(const Arguments& arguments) {
  bool json = false;
  Flags flags("doctor", "lockstep doctor");
  flags.toggle(json, "--json",
               "one JSON document: findings, and every command and flag with whether it is built");
  if (!flags.parse(arguments)) return exit_ok;
  const std::vector<Finding> findings = {trainer(), processor(), cores(), memory(), shared_memory(), blas()};
  if (json) {
    print_json(to_json(findings));
  } else {
    print_text(findings);
  }
  return exit_ok;
}

}  // namespace lockstep::cli
