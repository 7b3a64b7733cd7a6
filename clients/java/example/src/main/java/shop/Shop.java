package shop;

import dev.tallygate.servlet.Tallygate;
import jakarta.servlet.http.HttpServletRequest;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

@SpringBootApplication
@RestController
public class Shop {
  public static void main(String[] args) {
    SpringApplication.run(Shop.class, args);
  }

  @GetMapping("/orders/{id}")
  String order(@PathVariable("id") String id, HttpServletRequest request) {
    Tallygate.note(request).attr("order", id); // only the handler knows that
    return "order " + id + "\n";
  }
}
