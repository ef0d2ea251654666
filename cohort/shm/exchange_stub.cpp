#include "cohort/shm/exchange.h"
namespace cohort::shm { size_t Exchange::channel_bytes() { return 4096; } }
