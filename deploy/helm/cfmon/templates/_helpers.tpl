{{- define "cfmon.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Short enough for the suffix that Kubernetes adds to a pod's name. */ -}}
{{- define "cfmon.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "cfmon.name" .) .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "cfmon.name" .) | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "cfmon.selectorLabels" -}}
app.kubernetes.io/name: {{ include "cfmon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cfmon.labels" -}}
{{ include "cfmon.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "cfmon.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "cfmon.configMap" -}}
{{ default (include "cfmon.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "cfmon.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "cfmon.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- /* Settings outside the configuration file: host names, and secrets. */ -}}
{{- define "cfmon.env" -}}
{{- if gt (int .Values.shards) 1 }}
- name: POD_INDEX # a label of pods since Kubernetes 1.28
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
- {name: CFMON_MQTT__SHARD, value: "$(POD_INDEX)/{{ .Values.shards }}"}
{{- end }}
{{- with .Values.runbooks.baseUrl }}
- {name: CFMON_HTTP__URL, value: {{ trimSuffix "/" . | quote }}}
{{- end }}
{{- with .Values.http.hosts }}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: CFMON_HTTP__HOSTS, value: {{ append . "$(POD_IP)" | toJson | quote }}} # Prometheus scrapes by address
{{- end }}
{{- if .Values.http.existingSecret }}
- {name: CFMON_HTTP__TOKEN_FILE, value: {{ printf "/etc/cfmon-http/%s" .Values.http.tokenKey | quote }}}
{{- end }}
{{- if .Values.mqtt.existingSecret }}
{{- with .Values.mqtt.usernameKey }}
- {name: CFMON_MQTT__USERNAME_FILE, value: {{ printf "/etc/cfmon-mqtt/%s" . | quote }}}
{{- end }}
- {name: CFMON_MQTT__PASSWORD_FILE, value: {{ printf "/etc/cfmon-mqtt/%s" .Values.mqtt.passwordKey | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cfmon.container" -}}
name: cfmon
image: {{ include "cfmon.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if .Values.agent.enabled }}
restartPolicy: Always # this makes it a sidecar: it starts before the agent and stops after it
{{- end }}
args: [run, /etc/cfmon/config.yaml]
{{- with include "cfmon.env" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
ports: [{name: metrics, containerPort: 9108}]
startupProbe: # the agent starts after this has succeeded once
  httpGet: {path: /startupz, port: metrics}
  periodSeconds: 2
  failureThreshold: 300 # ten minutes: a large model and what is stored of many agents are read first
livenessProbe: # /healthz, not /readyz: a lost broker must not get the monitor killed
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/cfmon, readOnly: true}
  - {name: state, mountPath: /var/lib/cfmon}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.http.existingSecret }}
  - {name: http-secret, mountPath: /etc/cfmon-http, readOnly: true}
  {{- end }}
  {{- if .Values.mqtt.existingSecret }}
  - {name: mqtt-secret, mountPath: /etc/cfmon-mqtt, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
