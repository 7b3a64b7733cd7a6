package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/IBM/sarama"
)

// untold is the value of authorized operations that a broker leaves out.
const untold = math.MinInt32

// checkACLs queries the rights of this principal. It changes nothing: the transactional id is
// tested with a request that no broker can grant.
func (e *kafkaSide) checkACLs(ctx context.Context) outcome {
	allowed, err := e.topicRights()
	if err != nil {
		return found(fail("acls", "", "query the rights on topics: %v", err))
	}
	var results []Result
	told := false
	for _, g := range aggregatorGrants(e.names) {
		var missing []sarama.AclOperation
		var err error
		switch g.kind {
		case sarama.AclResourceTopic:
			missing, err = e.missingOnTopic(g, allowed)
			told = told || allowed[g.name].told
		case sarama.AclResourceGroup:
			missing, err = e.missingOnGroup(ctx, g)
		case sarama.AclResourceTransactionalID:
			missing, err = e.missingOnTransactionalID(g)
		}
		if err != nil {
			results = append(results, fail("acls", "", "%s: %v", g.name, err))
		}
		if len(missing) > 0 {
			results = append(results, e.lacking(g, missing))
		}
	}
	switch {
	case len(results) > 0:
		return found(worst(results)...)
	case !told && e.layout != nil && len(e.layout.Topics) > 0:
		return found(skip("acls", "the brokers do not return the rights of this principal; `tallygate doctor --acls` lists what it needs"))
	}
	if e.layout != nil && len(e.layout.Missing) > 0 {
		return found(ok("acls", "this principal may create the missing topics; its rights on them can be checked later"))
	}
	return found(ok("acls", "this principal has all rights of an aggregator"))
}

func (e *kafkaSide) lacking(g grant, missing []sarama.AclOperation) Result {
	var ops []string
	// The aggregator also runs without the right to describe, or to send dead letters again.
	status := Warn
	for _, op := range missing {
		ops = append(ops, op.String())
		if op != describeConfigs && (op != write || g.name != e.names.Events) {
			status = Fail
		}
	}
	name := g.name
	if g.prefixed {
		name += "*"
	}
	g.ops = missing
	return Result{"acls", status, fmt.Sprintf("this principal may not %s %s %s", strings.Join(ops, ", "), kindName(g.kind), name), e.aclCommand(g)}
}

func kindName(k sarama.AclResourceType) string {
	switch k {
	case sarama.AclResourceGroup:
		return "the group"
	case sarama.AclResourceTransactionalID:
		return "the transactional ids"
	}
	return "the topic"
}

// rights are the operations allowed on a topic.
type rights struct {
	bits int32
	told bool // false: unknown
	err  sarama.KError
}

func (r rights) lacks(op sarama.AclOperation) bool { return r.told && r.bits&(1<<op) == 0 }

func (e *kafkaSide) topicRights() (map[string]rights, error) {
	req := sarama.NewMetadataRequest(sarama.V2_8_0_0, e.names.All())
	req.IncludeTopicAuthorizedOperations = true
	resp, err := e.brokers[0].GetMetadata(req)
	if err != nil {
		return nil, err
	}
	all := map[string]rights{}
	for _, t := range resp.Topics {
		r := rights{bits: t.TopicAuthorizedOperations, err: t.Err, told: resp.Version >= 8 && t.TopicAuthorizedOperations != untold}
		if t.Err == sarama.ErrTopicAuthorizationFailed {
			r.bits, r.told = 0, true
		}
		all[t.Name] = r
	}
	return all, nil
}

func (e *kafkaSide) missingOnTopic(g grant, allowed map[string]rights) (missing []sarama.AclOperation, err error) {
	r := allowed[g.name]
	if r.err == sarama.ErrUnknownTopicOrPartition { // only its creation can be tested
		err := e.admin.CreateTopic(g.name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true)
		if refused(err) {
			return []sarama.AclOperation{create}, nil
		}
		return nil, nil
	}
	for _, op := range g.ops {
		// An existing topic needs no right to create it.
		if r.lacks(op) && (op != create || r.err == sarama.ErrTopicAuthorizationFailed) {
			missing = append(missing, op)
		}
	}
	return missing, nil
}

func (e *kafkaSide) missingOnGroup(ctx context.Context, g grant) (missing []sarama.AclOperation, err error) {
	err = e.whileLoading(ctx, func() error {
		group, err := e.describeGroup(g.name)
		if err != nil {
			return err
		}
		r := rights{bits: group.AuthorizedOperations, told: group.AuthorizedOperations != untold && group.AuthorizedOperations != 0}
		if r.lacks(read) {
			missing = g.ops
		}
		return nil
	})
	if refused(err) {
		return g.ops, nil
	}
	return missing, err
}

// describeGroup returns a group with the rights on it.
func (e *kafkaSide) describeGroup(name string) (*sarama.GroupDescription, error) {
	b, err := e.client.Coordinator(name)
	if err != nil {
		return nil, err
	}
	resp, err := b.DescribeGroups(&sarama.DescribeGroupsRequest{Version: 4, Groups: []string{name}, IncludeAuthorizedOperations: true})
	if err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("broker %d returned %d groups for one", b.ID(), len(resp.Groups))
	}
	group := resp.Groups[0]
	if group.Err == sarama.ErrNotCoordinatorForConsumer {
		_ = e.client.RefreshCoordinator(name)
	}
	if group.Err != sarama.ErrNoError {
		return nil, group.Err
	}
	return group, nil
}

// missingOnTransactionalID requests the producer id of partition 0's owner with an invalid timeout
// and an unknown producer: brokers check the rights first, and then refuse.
func (e *kafkaSide) missingOnTransactionalID(g grant) ([]sarama.AclOperation, error) {
	id := g.name + "0"
	b, err := e.client.TransactionCoordinator(id)
	if err == nil {
		var resp *sarama.InitProducerIDResponse
		resp, err = b.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, TransactionalID: &id, ProducerID: math.MaxInt64, ProducerEpoch: 0})
		if err == nil && resp.Err == sarama.ErrTransactionalIDAuthorizationFailed {
			err = resp.Err
		}
	}
	if refused(err) {
		return g.ops, nil
	}
	if errors.Is(err, sarama.ErrUnsupportedVersion) {
		return nil, nil
	}
	return nil, err
}
