#include "cohort/store/tls/certificate_problem.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <vector>

#include "cohort/base/text/text.h"

namespace cohort::store {
namespace {

using base::Error;

std::string common_name(const X509_NAME* name) {
  char text[256] = "?";
  X509_NAME_get_text_by_NID(name, NID_commonName, text, sizeof(text));
  return text;
}

std::string time_text(const ASN1_TIME* time) {
  const std::unique_ptr<BIO, int (*)(BIO*)> memory(BIO_new(BIO_s_mem()), BIO_free);
  ASN1_TIME_print(memory.get(), time);
  char* text = nullptr;
  const auto size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<size_t>(size)};
}

std::string address_text(const ASN1_OCTET_STRING* address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const int size = ASN1_STRING_length(address);
  if (size == 4 || size == 16) {
    inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), text, sizeof(text));
  }
  return text;
}

std::string names_of(const X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  std::vector<std::string> texts;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const auto* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_IPADD) texts.push_back(address_text(name->d.iPAddress));
    if (name->type != GEN_DNS) continue;
    const auto* const data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    texts.emplace_back(data, static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  return texts.empty() ? "no name" : base::join(texts, ", ");
}

}  // namespace

Error certificate_problem(int problem, int depth, X509* certificate, const std::string& host,
                          const TlsOptions& options) {
  const auto whose = depth == 0 ? std::string("its certificate")
                                : fmt::format("the certificate of its authority \"{}\"",
                                              common_name(X509_get_subject_name(certificate)));
  const char* const renew = "renew it there, or set the clock of this host";
  switch (problem) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return Error(fmt::format("{} has expired on {}", whose, time_text(X509_get0_notAfter(certificate))))
          .with_hint(renew);
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Error(fmt::format("{} is not valid before {}", whose, time_text(X509_get0_notBefore(certificate))))
          .with_hint(renew);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return Error(fmt::format("{} is for {}, not for {}", whose, names_of(certificate), host))
          .with_hint(
              "name the server as its certificate does, or give it a certificate for this name (subjectAltName)");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return Error(fmt::format("{} is signed by \"{}\", which {} does not hold", whose,
                               common_name(X509_get_issuer_name(certificate)),
                               options.ca_file.empty() ? "this system's list of authorities"
                                                       : fmt::format("the CA file \"{}\"", options.ca_file)))
          .with_hint("give the certificate of that authority: --rdzv-conf cacert=FILE");
    default:
      return Error(fmt::format("{} cannot be trusted: {}", whose, X509_verify_cert_error_string(problem)));
  }
}

}  // namespace cohort::store
