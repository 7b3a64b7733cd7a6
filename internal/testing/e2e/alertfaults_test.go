package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// alertFault breaks one thing. strike returns what the runbook says to do; within is how long after the
// fault each of its alerts fires, with the waits of deploy/alerts.yaml. No other alert fires.
type alertFault struct {
	name, file string
	step       string // what the runbook says, in short
	ownKafka   bool
	inSuite    bool // it is played each time, and the others with -alerts.all
	ownBuild   bool // it needs a program of its own, which takes a minute to build
	within     map[string]time.Duration
	strike     func(s *alertStage) (mend func())
	after      time.Duration // how long what follows is recorded; 0: a minute
}

const seconds = time.Second

func alertFaults() []*alertFault {
	return []*alertFault{
		{
			name: "the broker is gone", file: "broker", inSuite: true, step: "start the broker", ownKafka: true, strike: brokerIsGone,
			within: map[string]time.Duration{"TallygateCountingStopped": 75 * seconds, "TallygateEnforcerBehind": 90 * seconds},
		},
		{
			name: "Redis is gone, and comes back empty", file: "redis", step: "start Redis, with its users", strike: redisIsGone,
			within: map[string]time.Duration{"TallygateEnforcerBehind": 85 * seconds},
		},
		{
			name: "the right to read events is revoked", file: "kafka-rights", inSuite: true, step: "`kafka-acls.sh` as `tallygate doctor --acls` prints it", ownKafka: true, strike: rightIsRevoked, after: 6 * time.Minute,
			within: map[string]time.Duration{"TallygateKafkaRefuses": 20 * seconds, "TallygateCountingStopped": 75 * seconds},
		},
		{
			name: "Redis has another password for enforcers", file: "redis-rights", inSuite: true, step: "write the password into the enforcers' file", strike: passwordIsAnother, after: 6 * time.Minute,
			within: map[string]time.Duration{"TallygateRedisRefuses": 20 * seconds, "TallygateEnforcerBehind": 85 * seconds},
		},
		{
			name: "all aggregators are gone", file: "aggregators", inSuite: true, step: "start them", strike: aggregatorsAreGone,
			within: map[string]time.Duration{
				"TallygateNoAggregator": 75 * seconds, "TallygateEnforcerBehind": 90 * seconds, "TallygateProgramDown": 135 * seconds,
			},
		},
		{
			name: "an owner of partitions hangs", file: "owner-hangs", step: "kill and start it", strike: ownerHangs,
			within: map[string]time.Duration{"TallygateProgramDown": 145 * seconds},
		},
		{
			name: "an enforcer is killed", file: "enforcer", step: "start it", strike: enforcerIsKilled,
			within: map[string]time.Duration{"TallygateProgramDown": 135 * seconds},
		},
		{
			name: "the rule file has a mistake", file: "rules", inSuite: true, step: "put the good file back, `tallygate check`", strike: ruleFileIsBroken,
			within: map[string]time.Duration{"TallygateRulesBroken": 135 * seconds},
		},
		{
			name: "an enforcer's clock is five seconds ahead", file: "clock", step: "set the clock right", strike: clockIsAhead, ownBuild: true,
			within: map[string]time.Duration{"TallygateClockSkew": 140 * seconds},
		},
		{
			name: "a rule wants to block too many users", file: "fuse", step: "load changed rules", strike: fuseBlows,
			within: map[string]time.Duration{"TallygateFuseBlown": 20 * seconds},
		},
		{
			name: "the network between Redis and enforcers is slow", file: "slow-feed", inSuite: true, step: "mend the network", strike: feedIsSlow, after: 6 * time.Minute,
			within: map[string]time.Duration{"TallygateSlowFeed": 11*time.Minute + 30*seconds, "TallygateOvershoot": 11*time.Minute + 30*seconds},
		},
		{
			name: "a service does not ask", file: "overshoot", step: "the service asks again", strike: nobodyAsks, after: 6 * time.Minute,
			within: map[string]time.Duration{"TallygateOvershoot": 11*time.Minute + 30*seconds},
		},
		{
			name: "a kill switch stays on", file: "kill-switch", step: "remove the file", strike: switchIsOn, after: 6 * time.Minute,
			within: map[string]time.Duration{"TallygateKillSwitch": 620 * seconds, "TallygateOvershoot": 11*time.Minute + 30*seconds},
		},
		{
			name: "a producer sends malformed events", file: "dead-letters", step: "the producer is mended", strike: eventsAreMalformed,
			within: map[string]time.Duration{"TallygateDeadLetters": 625 * seconds},
		},
	}
}

func brokerIsGone(s *alertStage) (mend func()) {
	s.kafka.Kill()
	return s.kafka.Start
}

func redisIsGone(s *alertStage) (mend func()) {
	s.store.Kill()
	return func() {
		s.store.Start()
		s.letEnforcersIn("right") // it had its users from this test
	}
}

func rightIsRevoked(s *alertStage) (mend func()) {
	allow := s.onlyDescribed(s.names.Events)
	return func() { allow(sarama.AclOperationRead) }
}

func passwordIsAnother(s *alertStage) (mend func()) {
	s.letEnforcersIn("another")
	return func() { s.tellEnforcers("another") }
}

func aggregatorsAreGone(s *alertStage) (mend func()) {
	for _, p := range s.members {
		p.Kill()
	}
	return func() {
		for _, p := range s.members {
			p.Start()
		}
	}
}

func ownerHangs(s *alertStage) (mend func()) {
	hung := s.members[0]
	hung.Signal(syscall.SIGSTOP)
	return func() {
		hung.Kill()
		hung.Start()
	}
}

func enforcerIsKilled(s *alertStage) (mend func()) {
	s.guards[1].Kill()
	return func() { s.guards[1].Start() }
}

func ruleFileIsBroken(s *alertStage) (mend func()) {
	good, err := os.ReadFile(s.rules)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(s.rules, strings.Replace(string(good), "limit:", "limmit:", 1))
	return func() {
		s.write(s.rules, string(good))
		if out, err := exec.Command(program(s.t, "tallygate"), "check", s.rules).CombinedOutput(); err != nil {
			s.t.Errorf("tallygate check: %v\n%s", err, out)
		}
	}
}

// clockIsAhead replaces an enforcer by one whose time.Now is wrong.
func clockIsAhead(s *alertStage) (mend func()) {
	wrong, right := s.guards[1], s.guards[1].path
	wrong.Stop()
	wrong.path = s.ahead
	wrong.Start()
	return func() {
		wrong.Stop()
		wrong.path = right
		wrong.Start()
	}
}

// buildAhead builds an enforcer on whose machine it is five seconds later.
func buildAhead(t *testing.T) (path string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go")
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const reads = "	sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(src), reads) == 0 {
		t.Fatalf("%s reads the clock in another way: let this test change that", file)
	}
	dir := t.TempDir()
	changed, overlay, out := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "enforcer")
	list, _ := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	for name, text := range map[string]string{changed: strings.ReplaceAll(string(src), reads, reads+"	sec += 5\n"), overlay: string(list)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", out, "../../../cmd/enforcer").CombinedOutput(); err != nil {
		t.Fatalf("build an enforcer with a wrong clock: %v\n%s", err, text)
	}
	return out
}

// fuseBlows is mended by a rule that blocks fewer.
func fuseBlows(s *alertStage) (mend func()) {
	s.service.invites.Store(true)
	return func() {
		good, err := os.ReadFile(s.rules)
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(s.rules, strings.Replace(string(good), "limit: 1\n", "limit: 5\n", 1))
	}
}

func feedIsSlow(s *alertStage) (mend func()) {
	s.redisWay.Slow(1500 * time.Millisecond)
	return s.redisWay.Heal
}

func nobodyAsks(s *alertStage) (mend func()) {
	s.service.asks.Store(false)
	return func() { s.service.asks.Store(true) }
}

func switchIsOn(s *alertStage) (mend func()) {
	s.write(s.off, "somebody forgot this")
	return func() {
		if err := os.Remove(s.off); err != nil {
			s.t.Fatal(err)
		}
	}
}

func eventsAreMalformed(s *alertStage) (mend func()) {
	s.service.malformed.Store(true)
	return func() { s.service.malformed.Store(false) }
}

func malformed(topic string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: 1, Value: sarama.StringEncoder(`{"uid": "42"}`)}
}
