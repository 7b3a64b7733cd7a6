package topics_test

import (
	"context"
	"fmt"
	"log"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

func ExampleEnsure() {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	layout, err := topics.Ensure(context.Background(), kafka.ListenAddrs(), conf, topics.Config{Partitions: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(layout.Names.Events, layout.Names.Table, layout.Partitions)
	// Output: tallygate.events tallygate-table 4
}
