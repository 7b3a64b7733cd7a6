package fenced

import (
	"time"

	"github.com/IBM/sarama"
)

// job is something to send to a broker: a batch, or another request.
type job struct {
	// A batch. Of one log, at most one is in a request.
	topic     string
	partition int32
	batch     *sarama.RecordBatch
	size      int
	timeout   time.Duration
	check     func() error // right before it is sent; an error is the job's answer

	call func(*sarama.Broker) error // another request; it goes alone

	// alone is a job with a request of its own. A request is answered when the slowest of its partitions has its
	// replicas, so one that had to wait in vain must not delay others again. No more than half of the connections
	// are used so.
	alone bool

	answered chan answered // holds one
	sent     chan struct{} // closed when the batch's bytes are not needed any more
}

type answered struct {
	resp *sarama.ProduceResponse
	err  error
}

func (j *job) answer(resp *sarama.ProduceResponse, err error) {
	select {
	case j.answered <- answered{resp, err}:
	default: // answered already
	}
}

func (j *job) sameLog(other *job) bool {
	return j.batch != nil && j.partition == other.partition && j.topic == other.topic
}

// send sends jobs in one request and answers them. An error is that of the connection, or of what could not be
// sent; answered is false if the jobs have none yet.
func send(b *sarama.Broker, jobs []*job) (answered bool, err error) {
	if call := jobs[0].call; call != nil {
		err := call(b)
		jobs[0].answer(nil, err)
		return true, err
	}
	req := &sarama.ProduceRequest{Version: produceVersion, RequiredAcks: sarama.WaitForAll}
	var of []*job
	for _, j := range jobs {
		if err := j.check(); err != nil {
			j.answer(nil, err)
			continue
		}
		req.AddBatch(j.topic, j.partition, j.batch)
		req.Timeout = max(req.Timeout, int32(j.timeout.Milliseconds()))
		of = append(of, j)
	}
	if len(of) == 0 {
		return true, nil
	}
	type result struct {
		resp *sarama.ProduceResponse
		err  error
	}
	came := make(chan result, 1)
	if err = b.AsyncProduce(req, func(resp *sarama.ProduceResponse, err error) { came <- result{resp, err} }); err != nil {
		return false, err
	}
	for _, j := range of {
		close(j.sent)
	}
	r := <-came
	for _, j := range of {
		j.answer(r.resp, r.err)
	}
	return true, r.err
}
