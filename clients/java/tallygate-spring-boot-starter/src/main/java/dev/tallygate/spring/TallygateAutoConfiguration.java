package dev.tallygate.spring;

import dev.tallygate.Emitter;
import dev.tallygate.TallygateClient;
import dev.tallygate.servlet.TallygateFilter;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import java.util.function.Predicate;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.web.servlet.DispatcherServlet;

/** Makes a client, an emitter and the filter of the properties tallygate.*. */
@AutoConfiguration
@EnableConfigurationProperties(TallygateProperties.class)
public class TallygateAutoConfiguration {
  private static final System.Logger LOG = System.getLogger("tallygate");

  @Bean
  @ConditionalOnMissingBean
  @ConditionalOnProperty("tallygate.url")
  TallygateClient tallygateClient(TallygateProperties p) {
    return TallygateClient.at(p.url()).timeout(p.timeout()).fail(p.fail()).token(p::token).build();
  }

  @Bean
  @ConditionalOnMissingBean
  @ConditionalOnProperty("tallygate.kafka.brokers")
  Emitter tallygateEmitter(TallygateProperties p, Environment environment) {
    TallygateProperties.Kafka kafka = p.kafka();
    Emitter.Builder builder = Emitter.to(kafka.brokers()).topic(kafka.topic()).maxEvents(kafka.maxEvents());
    String client = kafka.client() != null ? kafka.client() : environment.getProperty("spring.application.name");
    if (client != null) {
      builder.client(client);
    }
    kafka.properties().forEach(builder::kafka);
    return builder.start();
  }

  /** The filter, where there are servlets. */
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
  @ConditionalOnClass(DispatcherServlet.class)
  @ConditionalOnProperty(name = "tallygate.filter", matchIfMissing = true)
  static class Servlets {
    @Bean
    @ConditionalOnMissingBean(name = "tallygateFilter")
    FilterRegistrationBean<TallygateFilter> tallygateFilter(TallygateProperties p, ObjectProvider<TallygateClient> client,
        ObjectProvider<Emitter> emitter, ObjectProvider<TallygateCustomizer> customizers, ApplicationContext context) {
      TallygateFilter.Options options = new TallygateFilter.Options()
          .client(client.getIfAvailable()).emitter(emitter.getIfAvailable()).emitDenied(p.emitDenied())
          .uid(p.uidHeader() == null ? HttpServletRequest::getRemoteUser : TallygateFilter.header(p.uidHeader()))
          .api(new RouteNames(context)::of)
          .skip(below(oneOf(checked("tallygate.skip", p.skip())))).admit(oneOf(checked("tallygate.admit", p.admit())));
      if (p.ip()) {
        options.ip(HttpServletRequest::getRemoteAddr);
      }
      customizers.orderedStream().forEach(c -> c.customize(options));
      if (client.getIfAvailable() == null && emitter.getIfAvailable() == null) {
        LOG.log(System.Logger.Level.WARNING, "nothing is limited or counted: set tallygate.url and tallygate.kafka.brokers");
      }
      FilterRegistrationBean<TallygateFilter> filter = new FilterRegistrationBean<>(new TallygateFilter(options));
      filter.setOrder(p.order());
      filter.setAsyncSupported(true);
      return filter;
    }
  }

  /** The path of a request as the container has decoded it, with all ways to write it. */
  private static String path(HttpServletRequest r) {
    return r.getServletPath() + (r.getPathInfo() == null ? "" : r.getPathInfo());
  }

  private static Predicate<HttpServletRequest> below(Predicate<String> paths) {
    return r -> paths.test(path(r));
  }

  /** Refuses what {@link #oneOf} would never find. */
  private static List<String> checked(String setting, List<String> patterns) {
    for (String p : patterns) {
      if (p.isBlank() || p.replaceAll("\\*+$", "").contains("*")) {
        throw new IllegalArgumentException(setting + " has \"" + p + "\", want names, or such that end in stars, as sms.*");
      }
    }
    return patterns;
  }

  /** Tells whether a name is one of these, or below one that ends in stars: /internal/**, sms.*. */
  static Predicate<String> oneOf(List<String> patterns) {
    return name -> patterns.stream().anyMatch(p -> {
      String above = p.replaceAll("\\*+$", "");
      return above.equals(p) ? name.equals(p) : name.startsWith(above) || above.equals(name + "/");
    });
  }
}
