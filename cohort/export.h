/// Words for the names that libcohort.so and libcohort_extras.so export; all others are hidden. Each says who may use the name:
///
///   COHORT_API          users of the library: names in the headers that are installed (cmake/public_headers.cmake)
///   COHORT_EXTRAS_API   libcohort_extras.so, which is built and installed with the library; nobody else
///   COHORT_BINDING_API  the Python module torchcohort._C, which is built and installed with the library; nobody else
///   COHORT_TEST_API     the tests; hidden in a library that is configured without them (COHORT_BUILD_TESTS=OFF)
///
/// A name of a layer without LibTorch (cohort/base, job, shm ...) needs none of them: its tests link its static library.
#pragma once

#define COHORT_API __attribute__((visibility("default")))
#define COHORT_EXTRAS_API __attribute__((visibility("default")))
#define COHORT_BINDING_API __attribute__((visibility("default")))
#ifdef COHORT_WITHOUT_TEST_EXPORTS
#define COHORT_TEST_API
#else
#define COHORT_TEST_API __attribute__((visibility("default")))
#endif
