package dev.tallygate.spring;

import dev.tallygate.servlet.TallygateFilter;

/** A bean that changes what the filter does: who the user is, what requests are called, what is answered. */
@FunctionalInterface
public interface TallygateCustomizer {
  void customize(TallygateFilter.Options options);
}
