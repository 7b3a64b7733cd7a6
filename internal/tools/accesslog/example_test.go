package accesslog_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tallygate/tallygate/internal/tools/accesslog"
)

func ExampleReader() {
	log := strings.NewReader(`192.0.2.7 - ann [17/May/2015:10:05:03 +0200] "GET /cart/items?page=2 HTTP/1.1" 200 512
not a line of a log
192.0.2.8 - - [17/May/2015:10:05:04 +0200] "POST /login HTTP/1.1" 401 -
`)
	r := accesslog.NewReader(log, accesslog.Auto)
	for {
		e, line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if wrong := (*accesslog.LineError)(nil); errors.As(err, &wrong) {
			fmt.Println(wrong)
			continue
		}
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(line, e.Time, e.UID, e.API, e.Outcome)
	}
	fmt.Println("skipped:", r.Skipped())
	// Output:
	// 1 2015-05-17T08:05:03Z ann get.cart.items success
	// line 2: expected a time such as [17/May/2015:10:05:03 +0000] behind the user
	// 3 2015-05-17T08:05:04Z 192.0.2.8 post.login denied
	// skipped: 1
}
