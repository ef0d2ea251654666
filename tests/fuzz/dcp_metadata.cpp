// `.metadata` of a folder of torch.distributed.checkpoint.
#include "cohort/files/tensors/dcp/dcp_metadata.h"

#include "cohort/files/tensors/safetensors/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::files {
namespace {

void check(const DcpMetadata& metadata) {
  for (const auto& [name, tensor] : metadata.tensors) {
    FUZZ_CHECK(tensor_bytes(tensor.dtype, tensor.shape).has_value());
    int64_t sum = 0;
    for (const DcpChunk& chunk : tensor.chunks) {
      FUZZ_CHECK(check_region(box_region(chunk.offsets, chunk.sizes), tensor.shape).ok());
      FUZZ_CHECK(file_name_problem(chunk.record.file).empty());
      sum += num_elements(chunk.sizes);
    }
    FUZZ_CHECK(sum == num_elements(tensor.shape));
  }
  const auto pickle = format_dcp_metadata(metadata);
  FUZZ_CHECK(pickle.ok());
  const auto again = parse_dcp_metadata(*pickle);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->tensors.size() == metadata.tensors.size() && again->values.size() == metadata.values.size());
}

}  // namespace
}  // namespace cohort::files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto metadata = files::parse_dcp_metadata(fuzz::text_of(data, size));
  if (!metadata) FUZZ_CHECK(metadata.error().message().size() < 4000);
  if (metadata) files::check(*metadata);
  return 0;
}
