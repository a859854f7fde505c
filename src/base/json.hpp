// JSON, through nlohmann-json. This is the one header that includes it, because it is most of a unit's
// compile time: include it in .cpp files; headers that only pass Json along include base/json_fwd.hpp.
#pragma once

#include <nlohmann/json.hpp>

#include "base/json_fwd.hpp"
