package doctor_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

func ExampleCommand() {
	status := doctor.Command(context.Background(), []string{"--kafka", "127.0.0.1:1", "--no-write"}, nil, io.Discard, os.Stderr, testrun.Getenv)
	fmt.Println(status)
	// Output: 1
}

func ExampleRun() {
	cfg := doctor.Config{Kafka: &kafkaconn.Kafka{Brokers: []string{"127.0.0.1:1"}}}
	report, err := doctor.Run(context.Background(), cfg, func(r doctor.Result) {
		if r.Status == doctor.Fail {
			fmt.Println(r.Name, "failed")
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("well:", report.Well)
	// Output:
	// kafka failed
	// well: false
}
