{{/* The container of an enforcer, for the Deployment, the DaemonSet and the sidecar: (list . "0.0.0.0") */}}
{{- define "tallygate.enforcer" -}}
{{- $root := index . 0 }}{{ $host := index . 1 }}{{ $v := $root.Values }}{{ $c := list $root "enforcer" -}}
{{ include "tallygate.image" $c }}
args:
  {{- include "tallygate.redis.args" $root | nindent 2 }}
  - --prefix={{ $v.prefix }}
  - --shards={{ $v.shards }}
  - --instance-id=$(POD_NAME)
  - --listen={{ $host }}:8080
  - --grpc-listen={{ $host }}:8082
  - --metrics-listen=0.0.0.0:9090
  - --snapshot=/var/lib/tallygate/blocklist
  - --off-file=/etc/tallygate/switch/off
  - --drain-delay=5s
  {{- if and $v.enforcer.advertise (eq $host "0.0.0.0") }}
  - --advertise=$(POD_IP):8080
  {{- end }}
  {{- if $v.auth.tokensSecret }}
  - --tokens=/etc/tallygate/secrets/tokens/tokens.yaml
  {{- end }}
  {{- if $v.enforcer.tlsSecret }}
  - --tls-cert=/etc/tallygate/secrets/tls/tls.crt
  - --tls-key=/etc/tallygate/secrets/tls/tls.key
  {{- end }}
  {{- if $v.enforcer.emitAdmitted }}
  - --emit-admitted
  {{- end }}
  {{- if $v.enforcer.emitDenied }}
  - --emit-denied
  {{- end }}
  {{- if include "tallygate.enforcer.emits" $root }}
  {{- include "tallygate.kafka.args" $root | nindent 2 }}
  {{- end }}
  {{- include "tallygate.options" $v.enforcer.options | nindent 2 }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- include "tallygate.env" $v.enforcer | nindent 2 }}
ports:
  - {name: http, containerPort: 8080{{ if and (eq $v.enforcer.mode "DaemonSet") $v.enforcer.hostPort }}, hostPort: {{ $v.enforcer.hostPort }}{{ end }}}
  - {name: grpc, containerPort: 8082}
  - {name: metrics, containerPort: 9090}
{{ include "tallygate.probes" $root }}
resources: {{- toYaml $v.enforcer.resources | nindent 2 }}
volumeMounts:
  - {name: tallygate-state, mountPath: /var/lib/tallygate}
  - {name: tallygate-switch, mountPath: /etc/tallygate/switch, readOnly: true}
  {{- include "tallygate.mounts" $c | nindent 2 }}
{{- end }}

{{- define "tallygate.enforcer.volumes" -}}
- name: tallygate-state
  emptyDir: {sizeLimit: 1Gi}
- name: tallygate-switch # while this ConfigMap has the key "off", enforcers let everybody pass
  configMap: {name: {{ include "tallygate.name" . }}-switch, optional: true}
{{ include "tallygate.volumes" (list . "enforcer") }}
{{- end }}
