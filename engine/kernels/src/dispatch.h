// Which instruction sets were built and run on this machine.
#pragma once
#include "worker.h"

namespace rp {

// The i-th usable table, best first; null past the end.
const Table* usable_table(int i);

}  // namespace rp
