// Forward declaration of Json: an object keeps its keys in the order they were written, floats print so that
// they read back exactly.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;

}  // namespace lockstep
