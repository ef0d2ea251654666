/// Export marks of libcohort.so and libcohort_extras.so; names without a mark are hidden. Each mark says who may use the name:
///
///   COHORT_API          users of the library: names in the headers that are installed (cmake/public_headers.cmake)
///   COHORT_EXTRAS_API   libcohort_extras.so, which is built and installed with the library; nobody else
///   COHORT_BINDING_API  the Python module torchcohort._C, which is built and installed with the library; nobody else
///   COHORT_TEST_API     the tests; hidden in a library that is configured without them (COHORT_BUILD_TESTS=OFF)
///
/// Names of a layer without LibTorch (cohort/base, job, shm ...) need no mark: their tests link the layer's static library.
#pragma once

#define COHORT_API __attribute__((visibility("default")))
#define COHORT_EXTRAS_API __attribute__((visibility("default")))
#define COHORT_BINDING_API __attribute__((visibility("default")))
#ifdef COHORT_WITHOUT_TEST_EXPORTS
#define COHORT_TEST_API
#else
#define COHORT_TEST_API __attribute__((visibility("default")))
#endif
