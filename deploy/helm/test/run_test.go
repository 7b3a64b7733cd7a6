package helmtest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

const chosen = `
kafka: {brokers: ["kafka.kafka:9093"], tls: {enabled: true, caSecret: kca}, sasl: {mechanism: plain, user: tallygate, passwordSecret: kpass}}
redis: {addresses: ["redis.redis:6380"], passwordSecret: rpass, tls: {enabled: true, caSecret: rca}}
auth: {tokensSecret: tokens}
aggregator: {tlsSecret: atls, partitions: 4, options: {checkpoint-every: 200ms}}
enforcer: {tlsSecret: etls, emitAdmitted: true}
console: {enabled: true, tokenSecret: ct, sessionKeySecret: sk, tlsSecret: ctls}
notify:
  enabled: true
  tokenSecret: nt
  secret: ns
  config: |
    receivers: [{name: hook, webhook: {url_file: /etc/tallygate/secrets/notify/url}}]
    routes: [{name: oncall, on: verdict, to: hook, wait: 0s, every: 0s}]
rules:
  text: |
    apiVersion: tallygate.dev/v1
    kind: RuleSet
    metadata: {name: run}
    spec:
      rules:
        - {name: searches, match: {api: search.query}, limit: 5, per: 1h, then: {block: 1h}, notify: oncall}
`

// cluster does what Kubernetes would: pods of the workloads, with what they mount. Names of Services and pods become
// addresses, and so do folders, since nothing here has a root of its own. All else is as rendered.
type cluster struct {
	*stage
	all      []any
	secrets  map[string]map[string][]byte
	programs string
	pods     map[string]string // by name: its address
}

// programOf is the image's, by the container's name; "tallygate" has its command in the arguments.
var programOf = map[string]string{"aggregator": "aggregator", "enforcer": "enforcer", "console": "tallygate", "notify": "tallygate"}

func (c *cluster) build() {
	c.t.Helper()
	c.programs = filepath.Join(c.dir, "bin")
	cmd := exec.Command("go", "build", "-o", c.programs+string(filepath.Separator), "./cmd/...") //nolint:gosec // ours
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

// mount writes the volumes of a pod into a folder of its own, which takes the place of the root.
func (c *cluster) mount(pod, root string, spec core.PodSpec) {
	c.t.Helper()
	for _, m := range spec.Containers[0].VolumeMounts {
		v := spec.Volumes[slices.IndexFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name })]
		files := map[string][]byte{}
		switch {
		case v.Secret != nil:
			held, is := c.secrets[v.Secret.SecretName]
			if !is {
				c.t.Fatalf("%s mounts the Secret %s, which the page does not name", pod, v.Secret.SecretName)
			}
			for key, text := range held {
				if only := v.Secret.Items; len(only) == 0 || slices.ContainsFunc(only, func(i core.KeyToPath) bool { return i.Key == key }) {
					files[key] = text
				}
			}
		case v.ConfigMap != nil:
			if held := configMap(c.all, v.ConfigMap.Name); held != nil {
				for key, text := range held.Data {
					files[key] = []byte(c.placed(text, pod, root))
				}
			}
		}
		for name, text := range files {
			c.write(filepath.Join(root, m.MountPath, name), text)
		}
		if err := os.MkdirAll(filepath.Join(c.dir, root, m.MountPath), 0o700); err != nil {
			c.t.Fatal(err)
		}
	}
}

// placed puts addresses for the names of the cluster, and this pod's folder for the root.
func (c *cluster) placed(text, pod, root string) string {
	pairs := []string{
		"$(POD_NAME)", pod, "$(POD_IP)", c.pods[pod], "0.0.0.0", c.pods[pod],
		"kafka.kafka:9093", c.kafka, "redis.redis:6380", c.redis,
		"/etc/tallygate", filepath.Join(c.dir, root, "etc/tallygate"), "/var/lib/tallygate", filepath.Join(c.dir, root, "var/lib/tallygate"),
		"tallygate-aggregator.limits.svc", c.pods["tallygate-aggregator-0"],
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	for name, addr := range c.pods {
		text = strings.ReplaceAll(text, name+".tallygate-aggregator-peers.limits.svc", addr)
	}
	return text
}

// run starts a pod, and returns once its probes answer.
func (c *cluster) run(pod string, spec core.PodSpec) {
	c.t.Helper()
	container := spec.Containers[0]
	c.mount(pod, pod, spec)
	var args []string
	for _, a := range container.Args {
		args = append(args, c.placed(a, pod, pod))
	}
	if left := strings.Join(args, " "); strings.Contains(left, ".svc") || strings.Contains(left, "$(") {
		c.t.Fatalf("%s: what has no address here is left: %s", pod, left)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	c.process(pod, env, filepath.Join(c.programs, programOf[container.Name]), args...)
}

// probed waits until each probe of a pod is answered with 200, at the path and port of the manifest.
func (c *cluster) probed(pod string, spec core.PodSpec) {
	c.t.Helper()
	container := spec.Containers[0]
	for kind, p := range map[string]*core.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		at := container.Ports[slices.IndexFunc(container.Ports, func(port core.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal })]
		eventually(c.t, fmt.Sprintf("the %s probe of %s", kind, pod), func() (string, bool) {
			status, said := get(http.DefaultClient, fmt.Sprintf("http://%s:%d%s", c.pods[pod], at.ContainerPort, p.HTTPGet.Path))
			return said, status == http.StatusOK
		})
	}
}

// TestTheChartRuns takes the chart's arguments for what they are: the real programs are started with them, on a Kafka
// and a Redis with TLS and passwords. A key goes over its limit: the enforcer denies it, the console and a webhook tell.
func TestTheChartRuns(t *testing.T) {
	c := &cluster{stage: newStage(t), pods: map[string]string{}}
	c.build()
	told := make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	t.Cleanup(hook.Close)
	tls := map[string][]byte{"tls.crt": c.cert, "tls.key": c.key, "ca.crt": c.ca}
	one := func(key, value string) map[string][]byte { return map[string][]byte{key: []byte(value)} }
	c.secrets = map[string]map[string][]byte{
		"kca": tls, "rca": tls, "atls": tls, "etls": tls, "ctls": tls,
		"kpass": one("password", "kafka-secret\n"), "rpass": one("password", "redis-secret"),
		"tokens": one("tokens.yaml", fmt.Sprintf("- {name: programs, role: viewer, sha256: %x}\n", sha256.Sum256([]byte("viewer-token")))),
		"ct":     one("token", "viewer-token"), "nt": one("token", "viewer-token"), "ns": one("url", hook.URL),
		"sk": one("keys", strings.Repeat("0123456789abcdef", 4)),
	}
	works, all := documents(t, chosen)
	c.all = all
	specs := map[string]core.PodSpec{}
	for _, w := range works {
		names := []string{w.name + "-0"}
		if w.name == "tallygate-aggregator" {
			names = append(names, w.name+"-1")
		}
		for _, name := range names {
			c.pods[name], specs[name] = c.pod(len(c.pods)), w.template.Spec
		}
	}
	if len(specs) != 5 {
		t.Fatalf("%d pods", len(specs))
	}
	for name, spec := range specs {
		c.run(name, spec)
	}
	for name, spec := range specs {
		c.probed(name, spec)
	}

	c.emit(strings.Repeat(`{"uid":"42","api":"search.query"}`+"\n", 6))
	c.denied("42", true)
	c.denied("43", false)
	c.seen()
	eventually(t, "the webhook is told", func() (string, bool) {
		select {
		case text := <-told:
			return text, strings.Contains(text, `"verdict"`) && strings.Contains(text, "searches")
		default:
			return "nothing came", false
		}
	})
}

// emit sends events as an application would.
func (c *cluster) emit(lines string) {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.programs, "tallygate"), "emit", "--kafka", c.kafka, "--kafka-tls", "--kafka-ca", c.write("ca.pem", c.ca),
		"--kafka-sasl", "plain", "--kafka-user", "tallygate", "-")
	cmd.Env = append(os.Environ(), "TALLYGATE_KAFKA_PASSWORD=kafka-secret")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

func (c *cluster) denied(uid string, want bool) {
	c.t.Helper()
	client := c.client()
	eventually(c.t, fmt.Sprintf("the enforcer denies %s: %v", uid, want), func() (string, bool) {
		resp, err := client.Post("https://"+c.pods["tallygate-enforcer-0"]+":8080/v1/check", "application/json", //nolint:noctx // it has a timeout
			strings.NewReader(`{"uid":"`+uid+`","api":"search.query"}`))
		if err != nil {
			return err.Error(), false
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return string(text), strings.Contains(string(text), fmt.Sprintf(`"allowed":%v`, !want))
	})
}

// seen logs in at the console, which shows the block, and that every link of the chain works.
func (c *cluster) seen() {
	c.t.Helper()
	client := c.client()
	client.Jar, _ = cookiejar.New(nil)
	at := "https://" + c.pods["tallygate-console-0"] + ":8090"
	resp, err := client.PostForm(at+"/login", url.Values{"token": {"viewer-token"}}) //nolint:noctx // it has a timeout
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("the login is answered with %s", resp.Status)
	}
	for path, words := range map[string][]string{"/blocked": {"searches", "uid=•••"}, "/cluster": {"tallygate-aggregator-1", "tallygate-enforcer-0"}, "/": {"Everything works"}} {
		eventually(c.t, fmt.Sprintf("the console's %s has %q", path, words), func() (string, bool) {
			status, page := get(client, at+path)
			return page, status == http.StatusOK && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(page, w) })
		})
	}
}
