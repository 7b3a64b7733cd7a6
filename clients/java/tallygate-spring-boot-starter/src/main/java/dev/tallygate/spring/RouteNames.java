package dev.tallygate.spring;

import dev.tallygate.Names;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.BeanFactoryUtils;
import org.springframework.context.ApplicationContext;
import org.springframework.core.annotation.AnnotationAwareOrderComparator;
import org.springframework.web.servlet.HandlerExecutionChain;
import org.springframework.web.servlet.HandlerMapping;
import org.springframework.web.servlet.resource.ResourceHttpRequestHandler;
import org.springframework.web.util.ServletRequestPathUtils;

/**
 * Names a request by the route that Spring MVC will find for it. It asks for the route in advance, so that
 * a request's check and its event have the same name.
 */
final class RouteNames {
  private final ApplicationContext context;
  private volatile List<HandlerMapping> mappings; // null: no request has come yet

  RouteNames(ApplicationContext context) {
    this.context = context;
  }

  String of(HttpServletRequest request) {
    List<HandlerMapping> all = mappings;
    if (all == null) { // as DispatcherServlet finds them
      all = new ArrayList<>(BeanFactoryUtils.beansOfTypeIncludingAncestors(context, HandlerMapping.class, true, false).values());
      AnnotationAwareOrderComparator.sort(all);
      mappings = all;
    }
    HttpServletRequest asked = new Aside(request);
    try {
      ServletRequestPathUtils.parseAndCache(asked);
      for (HandlerMapping mapping : all) {
        HandlerExecutionChain found = mapping.getHandler(asked);
        if (found != null) {
          Object pattern = asked.getAttribute(HandlerMapping.BEST_MATCHING_PATTERN_ATTRIBUTE);
          // What no other route takes falls to that of static files, which may be there or not.
          return found.getHandler() instanceof ResourceHttpRequestHandler ? Names.UNROUTED
              : pattern == null ? Names.pathApi(request.getMethod(), request.getRequestURI())
              : Names.templateApi(request.getMethod(), pattern.toString());
        }
      }
    } catch (Exception e) { // a path, a method or a type of content that no route takes; MVC answers that
      return Names.UNROUTED;
    }
    return Names.UNROUTED;
  }

  /** A request whose attributes are its own, so that asking leaves no trace. */
  private static final class Aside extends HttpServletRequestWrapper {
    private final Map<String, Object> attributes = new HashMap<>();

    Aside(HttpServletRequest request) {
      super(request);
    }

    @Override
    public Object getAttribute(String name) {
      return attributes.containsKey(name) ? attributes.get(name) : super.getAttribute(name);
    }

    @Override
    public void setAttribute(String name, Object value) {
      attributes.put(name, value);
    }

    @Override
    public void removeAttribute(String name) {
      attributes.put(name, null);
    }
  }
}
